import { z } from 'zod'
import {
  acceptDeployServer,
  type DeployServerDocument,
  deployServerResource,
  deployServerStates,
  workersAtMost,
} from '../../models/deploy/deploy-servers.ts'
import { acceptDeployServerUpdate } from '../../models/deploy/deploy-server-update.ts'
import { acceptMachineReplacement } from '../../models/deploy/machine-replacement.ts'
import { deployMachineKinds } from '../../models/deploy/machine-providers.ts'
import { instanceTypeNames } from '../../models/deploy/instance-types.ts'
import { mine } from '../../models/resources.ts'
import { accepting, acceptingOrThere } from '../accept.ts'
import { activityList } from '../activity.ts'
import { byId, commonView, Id, Name, resourceView, Tags, Timestamp, timeOrNull } from '../fields.ts'
import { operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import { resourceOperations } from '../resources.ts'

const InstanceTypeName = z.enum(instanceTypeNames)

/** The fields that an update can change. */
const changeable = {
  tags: Tags,
  worker_count: z.int().min(1).max(workersAtMost),
  worker_instance_type: InstanceTypeName.describe('The size of each worker'),
  worker_disk_gib: z.int().min(1).max(16_384).describe('The disk of each worker, in GiB; it can only grow'),
  app_instance_type: InstanceTypeName.describe('The size of the control plane'),
}

const MachineName = z
  .string()
  .regex(/^(cp|w[1-9]|w10)$/)
  .describe('`cp`, or `w1` to `w10`')

const NodeView = z.strictObject({
  name: z.string(),
  machine_id: Id.nullable().describe('The container or VM'),
  ip_address: z.string(),
  instance_type: InstanceTypeName,
  disk_gib: z.int(),
  registered: z.boolean().describe('Whether the machine takes applications'),
  lost_at: Timestamp.nullable().describe('When its host stopped answering'),
})

const DeployServerView = z
  .strictObject({
    ...resourceView,
    status: z.enum(deployServerStates.all),
    uuid: Id.describe('The same as `id`'),
    init_step: z.string().nullable().describe('The current step of the open operation, in plain words'),
    worker_count: changeable.worker_count,
    worker_instance_type: InstanceTypeName,
    worker_disk_gib: z.int(),
    app_instance_type: InstanceTypeName,
    machine_kind: z.enum(deployMachineKinds).describe('The kind of its machines'),
    control_plane: NodeView.nullable(),
    workers: z.array(NodeView),
    vpc_id: Id.nullable(),
    subnet_id: Id.nullable(),
    lb_id: Id.nullable().describe('The load balancer of its applications'),
  })
  .meta({ id: 'DeployServer' })

type Node = DeployServerDocument['nodes'][number]
const toNodeView = ({
  name,
  machine_id,
  ip_address,
  instance_type,
  disk_gib,
  registered,
  lost_at,
}: Node) => ({
  name,
  machine_id,
  ip_address,
  instance_type,
  disk_gib,
  registered,
  lost_at: timeOrNull(lost_at),
})

const toView = (server: DeployServerDocument): z.output<typeof DeployServerView> => {
  const controlPlane = server.nodes.find(({ name }) => name === 'cp')
  return {
    ...commonView(server),
    uuid: server._id,
    init_step: server.init_step,
    worker_count: server.worker_count,
    worker_instance_type: server.worker_instance_type,
    worker_disk_gib: server.worker_disk_gib,
    app_instance_type: server.app_instance_type,
    machine_kind: server.machine_kind,
    control_plane: controlPlane ? toNodeView(controlPlane) : null,
    workers: server.nodes.filter(({ name }) => name !== 'cp').map(toNodeView),
    vpc_id: server.vpc_id,
    subnet_id: server.subnet_id,
    lb_id: server.lb_id,
  }
}

const common = resourceOperations({
  resource: deployServerResource,
  plural: 'deploy_servers',
  deletion:
    'Delete a deploy server and all it has: machines, applications, databases, services, volumes and backups',
  stored: { uuid: '_id' },
  view: DeployServerView,
  toView,
})

export const makeDeployServers = ({ machineKinds = deployMachineKinds }: OperationsContext) => [
  common.list,

  operation({
    method: 'POST',
    path: '/api/v1/deploy-servers',
    permission: 'deploy_servers:create',
    summary: 'Create the tenant’s deploy server, or get the one that exists',
    body: z
      .strictObject({
        ...changeable,
        name: Name.default('deploy'),
        tags: Tags.default({}),
        worker_count: changeable.worker_count.default(1),
        worker_instance_type: changeable.worker_instance_type.default('small'),
        worker_disk_gib: changeable.worker_disk_gib.default(10),
        app_instance_type: changeable.app_instance_type.default('mini'),
        machine_kind: z
          .enum(deployMachineKinds)
          .nullable()
          .default(null)
          .describe('The kind of its machines, which cannot be changed. Default: the operator’s choice'),
      })
      .prefault({}),
    responses: { 200: DeployServerView, 202: DeployServerView },
    handle: ({ caller, body }) =>
      acceptingOrThere(caller, toView, (by) => acceptDeployServer(by, body, machineKinds)),
  }),

  common.get,

  operation({
    method: 'PUT',
    path: '/api/v1/deploy-servers/{id}',
    permission: 'deploy_servers:update',
    summary: 'Scale or resize a deploy server; workers change one at a time',
    params: byId,
    body: z.strictObject(changeable).partial(),
    responses: { 202: DeployServerView },
    handle: ({ caller, params, body }) =>
      accepting(caller, toView, (by) => acceptDeployServerUpdate(by, params.id, body)),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/deploy-servers/{id}/machines/{machine}/replace',
    permission: 'deploy_servers:update',
    summary: 'Replace a worker or the control plane with a new machine',
    params: z.strictObject({ id: Id, machine: MachineName }),
    body: z
      .strictObject({
        discard_volumes: z
          .boolean()
          .default(false)
          .describe('Replace even a worker that has volumes, and destroy them'),
      })
      .prefault({}),
    responses: { 202: DeployServerView },
    handle: ({ caller, params: { id, machine: name }, body }) =>
      accepting(caller, toView, (by) => acceptMachineReplacement(by, id, { name, ...body })),
  }),

  common.delete,

  activityList({
    path: '/api/v1/deploy-servers/{id}/activity',
    permission: 'deploy_servers:read',
    summary:
      'List what happened to a deploy server: its creation, failed operations, lost and replaced machines, unhealthy targets',
    ownerOf: (caller, id) => mine(deployServerResource, caller, id),
  }),
]

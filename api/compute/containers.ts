import { z } from 'zod'
import {
  acceptContainer,
  acceptContainerUpdate,
  type ContainerDocument,
  containerKind,
  containerStates,
} from '../../models/compute/containers.ts'
import { accepting } from '../accept.ts'
import { byId } from '../fields.ts'
import { operation } from '../operation.ts'
import { configVars } from './config-vars.ts'
import { ContainerHealthCheck, Health, HealthCheck } from './health.ts'
import { mayChooseHost } from './hosts.ts'
import { instanceDatabases } from './instance-databases.ts'
import { instanceDisks } from './instance-disks.ts'
import { instanceNics } from './instance-nics.ts'
import { instanceObservation } from './observation/instances.ts'
import {
  Arguments,
  changeable as ofAll,
  creatable,
  instanceOperations,
  instanceView,
  shownAs,
  toInstanceView,
} from './instances.ts'
import { Ports, PortViews } from './ports.ts'

const diskWords =
  'What the container may write outside its disks, in GiB. Beyond that, its writes fail or its host stops it (`disk_full` in its activity)'

/** The fields that an update can change. */
const changeable = {
  ...ofAll,
  memory_mib: z.int().min(8).max(4_194_304),
  cpu_cores: z.number().min(0.1).max(512).multipleOf(0.01),
  disk_gib: z.int().min(1).max(1024).describe(diskWords),
  ports: Ports,
  health_check: ContainerHealthCheck.nullable(),
}

const CreateContainer = z.strictObject({
  ...changeable,
  ...creatable,
  command: Arguments.default([]).describe('Default: the image’s own'),
  entrypoint: Arguments.default([]).describe('Default: the image’s own'),
  restart_policy: changeable.restart_policy.default('always'),
  disk_gib: changeable.disk_gib.default(10),
  ports: Ports.default([]),
  health_check: ContainerHealthCheck.nullable()
    .default(null)
    .describe('Default: none, even if the image has one'),
})

const UpdateContainer = z.strictObject(changeable).partial()

const ContainerView = z
  .strictObject({
    ...instanceView,
    status: z.enum(containerStates.all),
    status_reason: instanceView.status_reason.describe(
      'Why the last operation failed, or why the host stopped the container. `crash_looping: …`: the container ends again and again, the last time with this exit code if there is one, and is restarted after longer and longer pauses. `disk_full: …`: the container has written its `disk_gib` outside its disks, and its writes there fail',
    ),
    desired_state: z.enum(['running', 'stopped']),
    command: z.array(z.string()),
    entrypoint: z.array(z.string()),
    cpu_cores: z.number(),
    disk_gib: z
      .int()
      .nullable()
      .describe('Null for a machine of a deploy server, which keeps its data on a disk'),
    restart_policy: changeable.restart_policy,
    ports: PortViews,
    health_check: HealthCheck.nullable(),
    health: Health,
  })
  .meta({ id: 'Container' })

const toView = (container: ContainerDocument): z.output<typeof ContainerView> => ({
  ...toInstanceView(container),
  desired_state: container.desired_state,
  command: container.command,
  entrypoint: container.entrypoint,
  cpu_cores: container.cpu_cores,
  disk_gib: container.disk_gib,
  restart_policy: container.restart_policy,
  ports: container.bindings,
  health_check: container.health_check,
  health: container.health,
})

const shown = {
  ...shownAs(containerKind),
  plural: 'containers' as const,
  staysBehind: 'files outside its disks are lost',
  console: { words: 'Open a terminal in a running container', command: ['/bin/sh'] },
  stored: { ports: 'bindings' },
  view: ContainerView,
  toView,
}

const createContainer = operation({
  method: 'POST',
  path: '/api/v1/containers',
  permission: 'containers:create',
  summary: 'Create a container and start it',
  body: CreateContainer,
  responses: { 202: ContainerView },
  refuses: [404],
  handle: ({ caller, body }) => {
    mayChooseHost(caller, body.host_id)
    return accepting(caller, toView, (by) => acceptContainer(by, body))
  },
})

const updateContainer = operation({
  method: 'PUT',
  path: '/api/v1/containers/{id}',
  permission: 'containers:update',
  summary: 'Update a container; its size changes at once, the rest at the next start',
  params: byId,
  body: UpdateContainer,
  responses: { 202: ContainerView },
  handle: ({ caller, params, body }) =>
    accepting(caller, toView, (by) => acceptContainerUpdate(by, params.id, body)),
})

const common = instanceOperations(shown)

export const containers = [
  common.list,
  createContainer,
  common.get,
  updateContainer,
  common.delete,
  common.start,
  common.reschedule,
  common.stop,
  ...instanceNics(shown),
  ...instanceObservation(shown),
  ...configVars(shown),
  ...instanceDisks(shown),
  ...instanceDatabases({ ...shown, kind: containerKind }),
]

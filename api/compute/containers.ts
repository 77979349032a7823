import { z } from 'zod'
import {
  type ContainerDocument,
  containerKind,
  containerResource,
  containerStates,
} from '../../models/compute/containers.ts'
import { unbound } from '../../lib/ports.ts'
import { resize } from '../../models/compute/reservations.ts'
import { sizeOf } from '../../models/identity/tenants.ts'
import { begin, create } from '../accept.ts'
import { byId, Id, resourceView, Timestamp, time, timeOrNull } from '../fields.ts'
import { NicView } from '../network/fields.ts'
import { operation } from '../operation.ts'
import { MountView } from '../storage/mounts.ts'
import { configVars } from './config-vars.ts'
import { Health, HealthCheck } from './health.ts'
import { mayChooseHost } from './hosts.ts'
import { instanceDisks } from './instance-disks.ts'
import { instanceNics } from './instance-nics.ts'
import { instanceObservation } from './observation/instances.ts'
import {
  Arguments,
  changeable as ofAll,
  creatable,
  instanceOperations,
  newborn,
  showInstance,
  takeForNew,
} from './instances.ts'
import { Ports, PortViews } from './ports.ts'

/** What can be changed later. */
const changeable = {
  ...ofAll,
  memory_mib: z.int().min(8).max(4_194_304),
  cpu_cores: z.number().min(0.1).max(512).multipleOf(0.01),
  ports: Ports,
  health_check: HealthCheck.nullable(),
}

const CreateContainer = z.strictObject({
  ...changeable,
  ...creatable,
  command: Arguments.default([]).describe('Without it, the image’s own'),
  entrypoint: Arguments.default([]).describe('Without it, the image’s own'),
  restart_policy: changeable.restart_policy.default('always'),
  ports: Ports.default([]),
  health_check: HealthCheck.nullable().default(null),
})

const UpdateContainer = z.strictObject(changeable).partial()

const ContainerView = z
  .strictObject({
    ...resourceView,
    status: z.enum(containerStates.all),
    desired_state: z.enum(['running', 'stopped']),
    image: z.string(),
    image_digest: z.string().nullable(),
    command: z.array(z.string()),
    entrypoint: z.array(z.string()),
    cpu_cores: z.number(),
    memory_mib: z.int(),
    restart_policy: changeable.restart_policy,
    ports: PortViews,
    nics: z.array(NicView),
    health_check: HealthCheck.nullable(),
    log_cap_mib: z.int(),
    disks: z.array(MountView),
    host_id: Id.nullable(),
    pending_changes: z.array(z.string()).describe('Fields that take effect at the next start'),
    exit_code: z.int().nullable(),
    restart_count: z.int(),
    started_at: Timestamp.nullable(),
    health: Health,
  })
  .meta({ id: 'Container' })

const own = {
  kind: containerKind,
  resource: containerResource,
  plural: 'containers' as const,
  staysBehind: 'files outside its disks stay behind',
  console: { words: 'A terminal in a running container', command: ['/bin/sh'] },
  stored: { ports: 'bindings' },
  view: ContainerView,
  toView: (container: ContainerDocument): z.output<typeof ContainerView> => ({
    id: container._id,
    tenant_id: container.tenant_id,
    name: container.name,
    tags: container.tags,
    status: container.status,
    status_reason: container.status_reason,
    operation_id: container.operation_id,
    desired_state: container.desired_state,
    image: container.image,
    image_digest: container.image_digest,
    command: container.command,
    entrypoint: container.entrypoint,
    cpu_cores: container.cpu_cores,
    memory_mib: container.memory_mib,
    restart_policy: container.restart_policy,
    ports: container.bindings,
    nics: container.nics,
    health_check: container.health_check,
    log_cap_mib: container.log_cap_mib,
    disks: container.disks ?? [], // not in records of before disks
    host_id: container.host_id,
    pending_changes: container.pending_changes,
    exit_code: container.exit_code,
    restart_count: container.restart_count,
    started_at: timeOrNull(container.started_at),
    health: container.health,
    created_at: time(container.created_at),
    updated_at: time(container.updated_at),
  }),
}
const shown = showInstance(own)

const createContainer = operation({
  method: 'POST',
  path: '/api/v1/containers',
  permission: 'containers:create',
  summary: 'Create a container, and start it',
  body: CreateContainer,
  responses: { 202: ContainerView },
  refuses: [404],
  handle: async ({ caller, body: { start, config_vars, host_id, nics, ...spec } }) => {
    mayChooseHost(caller, host_id)
    const fields = {
      ...spec,
      ...newborn(start, host_id),
      config_vars_sealed: await containerKind.sealConfigVars(caller.tenant_id, config_vars),
      bindings: unbound(spec.ports),
      health: 'none' as const,
    }
    return create(caller, own, fields, {
      input: { start },
      reserve: (container) => takeForNew(containerKind, container, { host_id, nics }),
    })
  },
})

const updateContainer = operation({
  method: 'PUT',
  path: '/api/v1/containers/{id}',
  permission: 'containers:update',
  summary: 'Change a container: size at once, the rest at the next start',
  params: byId,
  body: UpdateContainer,
  responses: { 202: ContainerView },
  handle: ({ caller, params, body }) =>
    begin(caller, own, params.id, 'update', {
      input: { changes: body },
      reserve: ({ cpu_cores, memory_mib }) => {
        const size = { cpu_cores: body.cpu_cores ?? cpu_cores, memory_mib: body.memory_mib ?? memory_mib }
        return resize(params.id, caller.tenant_id, sizeOf(size))
      },
    }),
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
]

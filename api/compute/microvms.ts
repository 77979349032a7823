import { z } from 'zod'
import { InvalidInput, OperationInProgress, Problem, StateConflict } from '../../lib/problem.ts'
import type { MachineDocument } from '../../models/compute/machines.ts'
import { type MicrovmDocument, microvmKind } from '../../models/compute/microvms.ts'
import { place } from '../../models/compute/placement.ts'
import { unbound } from '../../lib/ports.ts'
import { resize } from '../../models/compute/reservations.ts'
import { transaction } from '../../models/database.ts'
import { begin, create } from '../accept.ts'
import { byId, Name, Tags } from '../fields.ts'
import { operation } from '../operation.ts'
import { configVars } from './config-vars.ts'
import { Health, HealthCheck } from './health.ts'
import { mayChooseHost } from './hosts.ts'
import { instanceDisks } from './instance-disks.ts'
import { instanceNics } from './instance-nics.ts'
import { instanceObservation } from './observation/instances.ts'
import {
  changeable as ofAll,
  ConfigVars,
  instanceOf,
  newborn,
  showInstance,
  takeForNew,
} from './instances.ts'
import {
  creatableMachine,
  machineOperations,
  machineView,
  mustNotShrink,
  serialConsole,
  sizes,
  toMachineView,
} from './machines.ts'
import { Ports, PortViews } from './ports.ts'

const { image, command, entrypoint, restart_policy, log_cap_mib, tags } = ofAll

/** What can be changed later. */
const changeable = {
  image,
  command,
  entrypoint,
  restart_policy,
  log_cap_mib,
  tags,
  ...sizes,
  ports: Ports.describe('Reached by its first NIC: without one, there are none'),
  health_check: HealthCheck.nullable(),
}

const CreateMicrovm = z.strictObject({
  ...changeable,
  ...creatableMachine,
  command: command.default([]).describe('Without it, the image’s own'),
  entrypoint: entrypoint.default([]).describe('Without it, the image’s own'),
  restart_policy: restart_policy.default('always'),
  root_disk_gib: sizes.root_disk_gib.default(1).describe('It grows at the next start, and never shrinks'),
  ports: changeable.ports.default([]),
  health_check: changeable.health_check.default(null),
})

const UpdateMicrovm = z.strictObject(changeable).partial()

const MicrovmView = z
  .strictObject({
    ...machineView,
    command: z.array(z.string()),
    entrypoint: z.array(z.string()),
    restart_policy,
    ports: PortViews,
    health_check: HealthCheck.nullable(),
    health: Health,
  })
  .meta({ id: 'Microvm' })

const own = {
  kind: microvmKind,
  resource: microvmKind.resource,
  plural: 'microvms' as const,
  staysBehind: 'its root disk, memory and disks go with it',
  console: serialConsole('microVM'),
  stored: { ports: 'bindings' },
  view: MicrovmView,
  toView: (microvm: MicrovmDocument): z.output<typeof MicrovmView> => ({
    ...toMachineView(microvm),
    command: microvm.command,
    entrypoint: microvm.entrypoint,
    restart_policy: microvm.restart_policy,
    ports: microvm.bindings ?? [],
    health_check: microvm.health_check ?? null,
    health: microvm.health ?? 'none',
  }),
}
const shown = showInstance(own)

const createMicrovm = operation({
  method: 'POST',
  path: '/api/v1/microvms',
  permission: 'microvms:create',
  summary: 'Create a microVM of a container image, and start it',
  body: CreateMicrovm,
  responses: { 202: MicrovmView },
  refuses: [404],
  handle: async ({ caller, body: { start, config_vars, host_id, nics, ...spec } }) => {
    mayChooseHost(caller, host_id)
    mustBeReached(nics, spec.ports)
    const fields = {
      ...spec,
      ...newborn(start, host_id),
      bindings: unbound(spec.ports),
      health: 'none' as const,
      config_vars_sealed: await microvmKind.sealConfigVars(caller.tenant_id, config_vars),
      transfer_sealed: '-',
    }
    return create(caller, own, fields, {
      input: { start },
      reserve: (microvm) => takeForNew(microvmKind, microvm, { host_id, nics }),
    })
  },
})

const updateMicrovm = operation({
  method: 'PUT',
  path: '/api/v1/microvms/{id}',
  permission: 'microvms:update',
  summary: 'Change a microVM: its restart policy and tags at once, the rest at the next start',
  params: byId,
  body: UpdateMicrovm,
  responses: { 202: MicrovmView },
  handle: ({ caller, params, body }) =>
    begin(caller, own, params.id, 'update', {
      input: { changes: body },
      reserve: (microvm) => {
        mustNotShrink(microvm, body)
        mustBeReached(microvm.nics, body.ports)
        const changed = { ...microvm, ...body } as MachineDocument
        return resize(params.id, caller.tenant_id, microvmKind.sizeOf(changed))
      },
    }),
})

const forkMicrovm = operation({
  method: 'POST',
  path: '/api/v1/microvms/{id}/fork',
  permission: 'microvms:create',
  summary: 'Make a running microVM of a suspended one’s memory and root disk, which stays as it is',
  params: byId,
  body: z.strictObject({
    name: Name,
    tags: Tags.default({}),
    config_vars: ConfigVars.optional().describe(
      'For what begins in it from now on; what runs has those of the other. Without them, the other’s',
    ),
  }),
  responses: { 202: MicrovmView },
  handle: ({ caller, params: { id }, body: { name, tags: own_tags, config_vars } }) =>
    transaction(async () => {
      const source = (await instanceOf(shown, caller, id)) as MicrovmDocument
      const { host_id, image_digest, runs_with } = source
      const vars = config_vars ?? (await microvmKind.openConfigVars(source))
      const fields = {
        ...copied(source),
        ...newborn(true, null),
        ...runs_with,
        name,
        tags: own_tags,
        image_digest,
        disks: [],
        config_vars_sealed: await microvmKind.sealConfigVars(caller.tenant_id, vars),
        transfer_sealed: '-',
      }
      return create(caller, own, fields, {
        verb: 'fork',
        input: { from: id },
        reserve: async (microvm) => {
          await takeSource(source, microvm.operation_id)
          const nics = source.nics.map(({ subnet_id }) => ({ subnet_id, ip_address: null }))
          const taken = await takeForNew(microvmKind, microvm, { host_id, nics })
          await place(microvm._id, { kind: 'microvm', hostId: host_id })
          return taken
        },
      })
    }, caller.tenant_id),
})

/** A machine without NICs has no network. Throws InvalidInput. */
function mustBeReached(nics: unknown[], ports: unknown[] = []): void {
  if (ports.length === 0 || nics.length > 0) return
  const message = 'needs a NIC: a microVM is reached by its NICs alone'
  throw new InvalidInput(422, [{ pointer: '/ports', message }])
}

/** What a fork has of the other. It is on the same host, so that its ports are others. */
function copied(source: MicrovmDocument) {
  const ports = (source.ports ?? []).map((port) => ({ ...port, host_port: null }))
  return {
    image: source.image,
    command: source.command,
    entrypoint: source.entrypoint,
    cpu_cores: source.cpu_cores,
    memory_mib: source.memory_mib,
    root_disk_gib: source.root_disk_gib,
    restart_policy: source.restart_policy,
    log_cap_mib: source.log_cap_mib,
    health_check: source.health_check ?? null,
    health: 'none' as const,
    ports,
    bindings: unbound(ports),
  }
}

/** Nobody resumes or removes it until the operation lets it go. Throws StateConflict, OperationInProgress, `has_disks`. */
async function takeSource(source: MachineDocument, operationId: string | null): Promise<void> {
  const { _id, tenant_id, status, operation_id, disks } = source
  if (operation_id) throw new OperationInProgress(operation_id)
  if (status !== 'suspended') throw new StateConflict('fork', status)
  if (disks.length) {
    const detail = 'Disks are not copied: detach them before it is suspended'
    throw new Problem(409, 'has_disks', 'The microVM has disks', detail)
  }
  const { matchedCount } = await microvmKind.model.updateOne(
    { _id, tenant_id, status, operation_id: null },
    { $set: { operation_id: operationId } },
  )
  if (!matchedCount) throw new StateConflict('fork', status)
}

const common = machineOperations(shown)

export const microvms = [
  common.list,
  createMicrovm,
  common.get,
  updateMicrovm,
  common.delete,
  common.start,
  common.stop,
  common.reboot,
  common.suspend,
  common.resume,
  forkMicrovm,
  common.reschedule,
  ...instanceNics(shown),
  ...instanceObservation(shown),
  ...configVars(shown),
  ...instanceDisks(shown),
]

import { z } from 'zod'
import {
  acceptFork,
  acceptMicrovm,
  acceptMicrovmUpdate,
  type MicrovmDocument,
  microvmKind,
} from '../../models/compute/microvms.ts'
import { accepting } from '../accept.ts'
import { byId, Name, Tags } from '../fields.ts'
import { operation } from '../operation.ts'
import { configVars } from './config-vars.ts'
import { Health, HealthCheck } from './health.ts'
import { mayChooseHost } from './hosts.ts'
import { instanceDisks } from './instance-disks.ts'
import { instanceNics } from './instance-nics.ts'
import { changeable as ofAll, ConfigVars, shownAs } from './instances.ts'
import { instanceObservation } from './observation/instances.ts'
import {
  creatableMachine,
  machineOperations,
  machineView,
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

const toView = (microvm: MicrovmDocument): z.output<typeof MicrovmView> => ({
  ...toMachineView(microvm),
  command: microvm.command,
  entrypoint: microvm.entrypoint,
  restart_policy: microvm.restart_policy,
  ports: microvm.bindings,
  health_check: microvm.health_check,
  health: microvm.health,
})

const shown = {
  ...shownAs(microvmKind),
  plural: 'microvms' as const,
  staysBehind: 'its root disk, memory and disks go with it',
  console: serialConsole('microVM'),
  stored: { ports: 'bindings' },
  view: MicrovmView,
  toView,
}

const createMicrovm = operation({
  method: 'POST',
  path: '/api/v1/microvms',
  permission: 'microvms:create',
  summary: 'Create a microVM of a container image, and start it',
  body: CreateMicrovm,
  responses: { 202: MicrovmView },
  refuses: [404],
  handle: ({ caller, body }) => {
    mayChooseHost(caller, body.host_id)
    return accepting(caller, toView, (by) => acceptMicrovm(by, body))
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
    accepting(caller, toView, (by) => acceptMicrovmUpdate(by, params.id, body)),
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
  handle: ({ caller, params, body }) => accepting(caller, toView, (by) => acceptFork(by, params.id, body)),
})

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

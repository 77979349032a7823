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
import { instanceDatabases } from './instance-databases.ts'
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

/** The fields that an update can change. */
const changeable = {
  image,
  command,
  entrypoint,
  restart_policy,
  log_cap_mib,
  tags,
  ...sizes,
  ports: Ports.describe('Ports forwarded to the first NIC; a microVM without a NIC publishes none'),
  health_check: HealthCheck.nullable(),
}

const CreateMicrovm = z.strictObject({
  ...changeable,
  ...creatableMachine,
  command: command.default([]).describe('Default: the image’s own'),
  entrypoint: entrypoint.default([]).describe('Default: the image’s own'),
  restart_policy: restart_policy.default('always'),
  root_disk_gib: sizes.root_disk_gib
    .default(1)
    .describe('The size of the root disk, which can only grow; a new size takes effect at the next start'),
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
  staysBehind: 'its root disk, memory and disks move with it',
  console: serialConsole('microVM'),
  stored: { ports: 'bindings' },
  view: MicrovmView,
  toView,
}

const createMicrovm = operation({
  method: 'POST',
  path: '/api/v1/microvms',
  permission: 'microvms:create',
  summary: 'Create a microVM from a container image and start it',
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
  summary: 'Update a microVM; restart policy and tags change at once, the rest at the next start',
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
  summary: 'Fork a suspended microVM: start a new one from a copy of its memory and root disk',
  params: byId,
  body: z.strictObject({
    name: Name,
    tags: Tags.default({}),
    config_vars: ConfigVars.optional().describe(
      'For processes started after the fork; running ones keep the source’s. Default: the source’s',
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
  ...instanceDatabases({ ...shown, kind: microvmKind }),
]

import { z } from 'zod'
import {
  acceptReboot,
  acceptResume,
  acceptSuspend,
  type MachineDocument,
  machineStates,
  type SuspendableKind,
} from '../../models/compute/machines.ts'
import { accepting } from '../accept.ts'
import { byId } from '../fields.ts'
import { AskedNic } from '../network/fields.ts'
import { type Operation, operation } from '../operation.ts'
import {
  changeable,
  creatable,
  Grace,
  instanceOperations,
  instanceView,
  type ShownInstance,
  toInstanceView,
} from './instances.ts'

// The fields and operations that microVMs and VMs share, beyond those of every instance.

export const sizes = {
  cpu_cores: z.int().min(1).max(64),
  memory_mib: z.int().min(64).max(4_194_304),
  root_disk_gib: z.int().min(1).max(65_536),
}
export const { restart_policy, log_cap_mib, tags } = changeable

export const creatableMachine = {
  ...creatable,
  ...sizes,
  nics: z
    .array(AskedNic)
    .max(4)
    .default([])
    .describe('All in one VPC; the default route goes through the first'),
}

export const machineView = {
  ...instanceView,
  status: z.enum(machineStates.all),
  desired_state: z.enum(['running', 'stopped', 'suspended']),
  cpu_cores: z.int(),
  root_disk_gib: z.int(),
}

export const toMachineView = (machine: MachineDocument) => ({
  ...toInstanceView(machine),
  desired_state: machine.desired_state,
  cpu_cores: machine.cpu_cores,
  root_disk_gib: machine.root_disk_gib,
})

/** The serial console, which several clients can watch in parallel; with a command, a terminal in the machine. */
export const serialConsole = (title: string) => ({
  words: `Open the serial console of a running ${title}, or a terminal that runs a command`,
  command: [],
})

/** The operations of every instance, plus suspend, resume and reboot. */
export function machineOperations(shown: ShownInstance & { kind: SuspendableKind }) {
  const { plural, kind, view, toView } = shown
  const { title } = kind
  const path = `/api/v1/${plural}/{id}`

  return {
    ...instanceOperations(shown),

    suspend: operation({
      method: 'POST',
      path: `${path}/suspend`,
      permission: `${plural}:update`,
      summary: `Suspend a ${title}: save its memory to a file and free its CPU and RAM`,
      params: byId,
      responses: { 202: view },
      handle: ({ caller, params }) => accepting(caller, toView, (by) => acceptSuspend(kind, by, params.id)),
    }),

    resume: operation({
      method: 'POST',
      path: `${path}/resume`,
      permission: `${plural}:update`,
      summary: `Resume a suspended ${title} exactly where it stopped, on its host or another with room`,
      params: byId,
      responses: { 202: view },
      handle: ({ caller, params }) => accepting(caller, toView, (by) => acceptResume(kind, by, params.id)),
    }),

    reboot: operation({
      method: 'POST',
      path: `${path}/reboot`,
      permission: `${plural}:update`,
      summary: `Reboot a ${title}, and apply its pending changes`,
      params: byId,
      body: z.strictObject({ grace_sec: Grace }).default({ grace_sec: 10 }),
      responses: { 202: view },
      handle: ({ caller, params, body }) =>
        accepting(caller, toView, (by) => acceptReboot(kind, by, params.id, body)),
    }),
  } satisfies Record<string, Operation>
}

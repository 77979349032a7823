import { z } from 'zod'
import { InvalidInput } from '../../lib/problem.ts'
import { type InstanceDocument, wishOf } from '../../models/compute/instances.ts'
import { type MachineDocument, machineStates } from '../../models/compute/machines.ts'
import { needRoomElsewhere } from '../../models/compute/placement.ts'
import { reserve, reserveIfRoom } from '../../models/compute/reservations.ts'
import { disksOf } from '../../models/storage/attachments.ts'
import { begin } from '../accept.ts'
import { byId, Id, resourceView, Timestamp, time, timeOrNull } from '../fields.ts'
import { AskedNic, NicView } from '../network/fields.ts'
import { type Operation, operation } from '../operation.ts'
import { MountView } from '../storage/mounts.ts'
import { changeable, creatable, Grace, instanceOperations, type ShownInstance } from './instances.ts'

// What microVMs and VMs have in common beyond what every instance has.

export const sizes = {
  cpu_cores: z.int().min(1).max(64),
  memory_mib: z.int().min(64).max(4_194_304),
  root_disk_gib: z.int().min(1).max(65_536),
}
export const { restart_policy, log_cap_mib, tags } = changeable

export const creatableMachine = {
  ...creatable,
  ...sizes,
  nics: z.array(AskedNic).max(4).default([]).describe('All in one VPC; the first has the default route'),
}

export const machineView = {
  ...resourceView,
  status: z.enum(machineStates.all),
  desired_state: z.enum(['running', 'stopped', 'suspended']),
  image: z.string(),
  image_digest: z.string().nullable(),
  cpu_cores: z.int(),
  memory_mib: z.int(),
  root_disk_gib: z.int(),
  nics: z.array(NicView),
  log_cap_mib: z.int(),
  disks: z.array(MountView),
  host_id: Id.nullable(),
  pending_changes: z.array(z.string()).describe('Fields that take effect at the next start'),
  exit_code: z.int().nullable(),
  restart_count: z.int(),
  started_at: Timestamp.nullable(),
}

type View = z.output<z.ZodObject<typeof machineView>>

export const toMachineView = (machine: MachineDocument): View => ({
  id: machine._id,
  tenant_id: machine.tenant_id,
  name: machine.name,
  tags: machine.tags,
  status: machine.status,
  status_reason: machine.status_reason,
  operation_id: machine.operation_id,
  desired_state: machine.desired_state,
  image: machine.image,
  image_digest: machine.image_digest,
  cpu_cores: machine.cpu_cores,
  memory_mib: machine.memory_mib,
  root_disk_gib: machine.root_disk_gib,
  nics: machine.nics,
  log_cap_mib: machine.log_cap_mib,
  disks: machine.disks,
  host_id: machine.host_id,
  pending_changes: machine.pending_changes,
  exit_code: machine.exit_code,
  restart_count: machine.restart_count,
  started_at: timeOrNull(machine.started_at),
  created_at: time(machine.created_at),
  updated_at: time(machine.updated_at),
})

/** Its serial line, which several may watch at once; with a command, a terminal in it. */
export const serialConsole = (title: string) => ({
  words: `The serial line of a running ${title}, or with a command a terminal in it`,
  command: [],
})

/** A root disk only grows. Throws InvalidInput. */
export function mustNotShrink(
  { root_disk_gib: before }: MachineDocument,
  { root_disk_gib: asked = before }: { root_disk_gib?: number | undefined },
): void {
  if (asked >= before) return
  const message = `is too small: the root disk has ${before} GiB, and never shrinks`
  throw new InvalidInput(422, [{ pointer: '/root_disk_gib', message }])
}

/** Those of every instance, and to suspend, resume and reboot. */
export function machineOperations(shown: ShownInstance) {
  const { plural, kind, view } = shown
  const { title } = kind
  const path = `/api/v1/${plural}/{id}`
  const holding = (instance: InstanceDocument): Promise<void> =>
    reserve(instance._id, instance.tenant_id, kind.sizeOf(instance))
  /** Where its host has given its room to others, its operation finds it another. */
  async function toRun(instance: InstanceDocument): Promise<void> {
    const { _id, tenant_id } = instance
    if (await reserveIfRoom(_id, tenant_id, kind.sizeOf(instance))) return
    const disks = await disksOf(instance)
    await needRoomElsewhere([_id, ...disks.map((disk) => disk._id)], await wishOf(kind, instance, null))
  }

  return {
    ...instanceOperations(shown),

    suspend: operation({
      method: 'POST',
      path: `${path}/suspend`,
      permission: `${plural}:update`,
      summary: `Suspend a ${title}: its memory goes to a file, its processor and memory to others`,
      params: byId,
      responses: { 202: view },
      handle: ({ caller, params }) =>
        begin(caller, shown, params.id, 'suspend', { set: { desired_state: 'suspended' } }),
    }),

    resume: operation({
      method: 'POST',
      path: `${path}/resume`,
      permission: `${plural}:update`,
      summary: `Resume a suspended ${title}: where it was, or where there is room; refused while there is none`,
      params: byId,
      responses: { 202: view },
      handle: ({ caller, params }) =>
        begin(caller, shown, params.id, 'resume', { set: { desired_state: 'running' }, reserve: toRun }),
    }),

    reboot: operation({
      method: 'POST',
      path: `${path}/reboot`,
      permission: `${plural}:update`,
      summary: `Restart a ${title}; what waits for its next start takes effect`,
      params: byId,
      body: z.strictObject({ grace_sec: Grace }).default({ grace_sec: 10 }),
      responses: { 202: view },
      handle: ({ caller, params, body }) =>
        begin(caller, shown, params.id, 'reboot', { input: body, reserve: holding }),
    }),
  } satisfies Record<string, Operation>
}

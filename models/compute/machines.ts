import mongoose from 'mongoose'
import type { MachineKind, MachineSource, MachineSpec } from '../../drivers/machines.ts'
import type { PlacedKindName } from '../../lib/host-protocol.ts'
import { InvalidInput } from '../../lib/problem.ts'
import type { By } from '../acceptance.ts'
import { diskSize, type Size, sizeOf } from '../identity/tenants.ts'
import {
  defineResource,
  type Resource,
  type ResourceDocument,
  resourceSchema,
  wholeFeed,
} from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type StateOf, type States, states } from '../states.ts'
import { disksOf } from '../storage/attachments.ts'
import { type AcceptedInstance, begin, instanceVerbs, type NewInstance } from './instance-acceptance.ts'
import {
  attaching,
  attachingDatabases,
  defineInstance,
  type InstanceDocument,
  type InstanceKind,
  instanceFields,
  type PlacedSpec,
  constraintsOf,
} from './instances.ts'
import { needRoomElsewhere } from './placement.ts'
import { reserve, reserveAlso, reserveIfRoom, shrink } from './reservations.ts'

// MicroVMs and VMs: instances with their own kernel, which can be suspended.

const always = { update: 'updating', reschedule: 'rescheduling', delete: 'deleting' } as const

/** `any`: verbs of one kind alone, which are possible also while it is suspended. */
const machineTable = <const A extends Record<string, 'updating'>>(any: A) => ({
  creating: {},
  running: {
    ...always,
    ...any,
    ...attaching,
    stop: 'stopping' as const,
    reboot: 'rebooting' as const,
    suspend: 'suspending' as const,
    repair: 'starting' as const,
  },
  // The saved memory includes the state of the devices: disks and NICs cannot change.
  suspended: { ...always, ...any, resume: 'resuming' as const, stop: 'stopping' as const },
  stopped: { ...always, ...any, ...attaching, start: 'starting' as const },
  error: { ...always, ...any, ...attaching, start: 'starting' as const },
  // It ran at its host's last report, and its root disk is on that host.
  unreachable: { reschedule: 'rescheduling' as const, delete: 'deleting' as const },
})

// Suspend and resume cannot be cancelled: the machine either runs or is suspended.
export const machineStates = states(machineTable({}), {
  supersede: ['delete'],
  final: ['delete', 'suspend', 'resume'],
})

export const microvmStates = states(machineTable(attachingDatabases), {
  supersede: ['delete'],
  final: ['delete', 'suspend', 'resume', 'detach_database'],
})

export interface MachineDocument
  extends InstanceDocument<StateOf<typeof machineStates>>,
    Pick<MachineSpec, 'root_disk_gib'> {
  command: string[]
  entrypoint: string[]
  /** During a move: where the target host fetches the machine. Sealed (`noteMachineSource`); `-` for none. */
  transfer_sealed: string
}

/** The schema fields of a machine. */
const machineFields = {
  ...instanceFields,
  command: { type: [String], default: [] },
  entrypoint: { type: [String], default: [] },
  root_disk_gib: { type: Number, required: true },
  transfer_sealed: { type: String, default: '-' },
}

/** What a host needs to run a machine. The host adds its own parts (taps, sockets). */
export type PlacedMachine = Omit<MachineSpec, 'nics' | 'disks'> & PlacedSpec

/** `more`: the fields and rules of this kind alone. */
export function defineMachine<D extends MachineDocument, Verb extends string>(
  kind: MachineKind,
  title: string,
  table: States<StateOf<typeof machineStates>, Verb>,
  more: {
    fields?: Record<string, unknown>
    placedAs?: (machine: D) => PlacedKindName
    specOf?: (machine: D) => Partial<PlacedMachine>
    onNics?: (machine: D) => Promise<Partial<D>>
    mayLoseNic?: (machine: D) => void
  } = {},
) {
  const collection = `${kind}s`
  const fields = { ...machineFields, ...more.fields } as Parameters<typeof resourceSchema<D>>[0]
  const schema = resourceSchema<D>(fields, table, collection)
  schema.index({ host_id: 1 })
  const model = mongoose.model<D>(kind === 'vm' ? 'Vm' : 'Microvm', schema)
  const resource = defineResource(kind, model, table, {
    title,
    feed: wholeFeed,
    async comesToRest({ _id, tenant_id }) {
      const machine = await model.findOne({ _id, tenant_id }).lean<D>()
      if (machine) await shrink(_id, tenant_id, sizeOfMachine(machine))
    },
  })
  sealedField(model, 'transfer_sealed', transferContext)
  return defineInstance({
    kind,
    title,
    model,
    resource,
    moves_whole: true,
    live: new Set(['restart_policy', 'tags', 'name']),
    sizeOf: sizeOfMachine,
    specOf: (machine) => ({ ...specOfMachine(kind, machine), ...more.specOf?.(machine) }),
    ...(more.placedAs ? { placedAs: more.placedAs } : {}),
    ...(more.onNics ? { onNics: more.onNics } : {}),
    ...(more.mayLoseNic ? { mayLoseNic: more.mayLoseNic } : {}),
  })
}

/**
 * The larger of the present size and the size at the next start. A machine whose desired state is suspended reserves
 * only disk: for its root disk, and for the file with its memory.
 */
function sizeOfMachine(machine: MachineDocument): Size {
  const { desired_state, cpu_cores, memory_mib, runs_with, root_disk_gib: disk_gib } = machine
  if (desired_state === 'suspended')
    return diskSize(disk_gib + Math.ceil((runs_with?.memory_mib ?? memory_mib) / 1024))
  const largest = {
    cpu_cores: Math.max(cpu_cores, runs_with?.cpu_cores ?? 0),
    memory_mib: Math.max(memory_mib, runs_with?.memory_mib ?? 0),
  }
  return { ...sizeOf(largest), disk_gib }
}

const specOfMachine = (kind: MachineKind, machine: MachineDocument): PlacedMachine => ({
  id: machine._id,
  tenant_id: machine.tenant_id,
  name: machine.name,
  kind,
  image: machine.image,
  image_digest: machine.image_digest,
  command: machine.command,
  entrypoint: machine.entrypoint,
  cpu_cores: machine.cpu_cores,
  memory_mib: machine.memory_mib,
  root_disk_gib: machine.root_disk_gib,
  restart_policy: machine.restart_policy,
  log_cap_mib: machine.log_cap_mib,
  disks: machine.disks,
})

const transferContext = ({ _id }: Pick<ResourceDocument, '_id'>): string => `machines.transfer:${_id}`
const sealMachineSource = (id: string, source: MachineSource): Promise<string> =>
  sealSecret(source, transferContext({ _id: id }))

/** Records where the target host fetches the machine. Fenced by the operation that moves it. */
export async function noteMachineSource(
  { model }: Pick<InstanceKind, 'model'>,
  { _id, tenant_id, operation_id }: MachineDocument,
  source: MachineSource,
): Promise<void> {
  const set = { transfer_sealed: await sealMachineSource(_id, source) }
  await model.updateOne({ _id, tenant_id, operation_id }, { $set: set })
}

export const openMachineSource = ({ _id, transfer_sealed }: MachineDocument): Promise<MachineSource> =>
  unsealSecret(transfer_sealed, transferContext({ _id }))

/** A kind of machine, as common code uses it. */
export type SuspendableKind = Omit<InstanceKind, 'resource'> & {
  resource: Resource<InstanceDocument, Parameters<typeof machineStates.from>[0]>
}

export interface NewMachine extends NewInstance, Pick<MachineDocument, 'root_disk_gib'> {}

/** Throws InvalidInput: a root disk never shrinks. */
export function mustNotShrink(
  { root_disk_gib: before }: MachineDocument,
  { root_disk_gib: asked = before }: { root_disk_gib?: number | undefined },
): void {
  if (asked >= before) return
  const message = `is too small: the root disk has ${before} GiB, and never shrinks`
  throw new InvalidInput(422, [{ pointer: '/root_disk_gib', message }])
}

/** Throws QuotaExceeded, and NoCapacity if the host has no disk room for the memory. CPU and memory stay reserved. */
export const acceptSuspend = (kind: SuspendableKind, by: By, id: string): AcceptedInstance =>
  begin(kind, by, id, 'suspend', {
    set: { desired_state: 'suspended' },
    reserve: (machine) => reserveAlso(id, by.tenant_id, kind.sizeOf(machine)),
  })

/** Throws QuotaExceeded, and NoCapacity if no host has room to run the machine. */
export const acceptResume = (kind: SuspendableKind, by: By, id: string): AcceptedInstance =>
  begin(kind, by, id, 'resume', {
    set: { desired_state: 'running' },
    reserve: (machine) => takeRoomToRun(kind, machine),
  })

/**
 * Reserves room on the present host, beside that of the memory's file. If that host is full, another one must have room:
 * the operation moves the machine.
 */
async function takeRoomToRun(kind: InstanceKind, machine: InstanceDocument): Promise<void> {
  const { _id, tenant_id } = machine
  if (await reserveIfRoom(_id, tenant_id, kind.sizeOf(machine))) return
  const disks = await disksOf(machine)
  await needRoomElsewhere([_id, ...disks.map((disk) => disk._id)], await constraintsOf(kind, machine, null))
}

/** Throws QuotaExceeded, and NoCapacity if the host has no room for the new size. */
export const acceptReboot = (
  kind: SuspendableKind,
  by: By,
  id: string,
  input: { grace_sec: number },
): AcceptedInstance =>
  begin(kind, by, id, 'reboot', {
    input,
    reserve: (machine) => reserve(id, by.tenant_id, kind.sizeOf(machine)),
  })

/** The rules of machines by verb, for `accepts`. */
export const machineVerbs = (kind: SuspendableKind) => ({
  ...instanceVerbs(kind),
  suspend: acceptSuspend.bind(null, kind),
  resume: acceptResume.bind(null, kind),
  reboot: acceptReboot.bind(null, kind),
})

import { newId } from '../../lib/ids.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import { begin as beginOn, type By, type More } from '../acceptance.ts'
import { transaction } from '../database.ts'
import { type AskedNic, mustHaveNic, takeNics } from '../network/nics.ts'
import { needNoPath } from '../network/paths.ts'
import type { Accepted } from '../operations.ts'
import { claimDisk, claimDisks, needsOwnPath } from '../storage/attachments.ts'
import type { DiskMount } from '../storage/disks.ts'
import { mine, type Resource } from '../resources.ts'
import { type InstanceDocument, type InstanceKind, maxDisks, takeInstanceNics } from './instances.ts'
import { reserve } from './reservations.ts'

// The acceptance rules for operations on instances of every kind. Each kind has its own rules for create and update.

type NewNic = Omit<AskedNic, 'id'>

/** The common input for a new instance: fields of its record, and inputs that the record does not hold as they are. */
export interface NewInstance
  extends Pick<
    InstanceDocument,
    'name' | 'tags' | 'image' | 'cpu_cores' | 'memory_mib' | 'log_cap_mib' | 'disks'
  > {
  start: boolean
  /** An operator's choice of host; null: the platform chooses. */
  host_id: string | null
  nics: NewNic[]
  managed_by?: string | null
}

/** A change of some of these fields of an instance. */
export type Changes<D extends InstanceDocument, Field extends keyof D> = {
  [F in Field]?: D[F] | undefined
}

/** The initial values of a new record. */
export const newborn = (start: boolean, wanted_host_id: string | null) => ({
  image_digest: null,
  desired_state: start ? ('running' as const) : ('stopped' as const),
  host_id: null,
  wanted_host_id,
  nics: [],
  pending_changes: [],
  exit_code: null,
  restart_count: 0,
  started_at: null,
  runs_with: null,
})

/**
 * Takes quota, disks and NICs for a new instance, in the transaction that accepts it. Returns the changed fields of its
 * record. Throws QuotaExceeded, NotFound, InvalidInput and the 409s of disks and subnets.
 */
export async function takeForNew(
  kind: InstanceKind,
  instance: InstanceDocument,
  { host_id, nics }: Pick<NewInstance, 'host_id' | 'nics'>,
): Promise<Partial<Pick<InstanceDocument, 'nics'>>> {
  await reserve(instance._id, instance.tenant_id, kind.sizeOf(instance))
  await claimDisks(kind, { ...instance, host_id }, instance.disks)
  return nics.length ? takeInstanceNics(kind, instance, nics) : {}
}

export type AcceptedInstance = Promise<Accepted<InstanceDocument>>

/** Accepts a verb on an instance of this kind. */
export const begin = <Verb extends string>(
  { resource }: { resource: Resource<InstanceDocument, Verb> },
  by: By,
  id: string,
  verb: NoInfer<Verb>,
  more: More<InstanceDocument>,
): AcceptedInstance => beginOn(by, resource, id, verb, more)

/** Throws QuotaExceeded, and NoCapacity if the host has given the room to other instances. */
export const acceptStart = (kind: InstanceKind, by: By, id: string): AcceptedInstance =>
  begin(kind, by, id, 'start', {
    set: { desired_state: 'running' },
    reserve: (instance) => reserve(id, by.tenant_id, kind.sizeOf(instance)),
  })

export const acceptStop = (
  kind: InstanceKind,
  by: By,
  id: string,
  input: { grace_sec: number },
): AcceptedInstance => begin(kind, by, id, 'stop', { input, set: { desired_state: 'stopped' } })

/** `host_id`: an operator's choice; null: the platform chooses. */
export const acceptReschedule = (
  kind: InstanceKind,
  by: By,
  id: string,
  input: { host_id: string | null; grace_sec: number },
): AcceptedInstance => begin(kind, by, id, 'reschedule', { input })

/** Throws NotFound (the disk), `too_many_disks`, and the 409s of disks. */
export const acceptAttachDisk = (
  kind: InstanceKind,
  by: By,
  id: string,
  mount: DiskMount,
): AcceptedInstance =>
  // One transaction: the list of disks must not change between the read and the write.
  transaction(async () => {
    const { disks } = await mine(kind.resource, by, id)
    return begin(kind, by, id, 'attach_disk', {
      input: mount,
      set: { disks: [...disks, mount] },
      async reserve(instance) {
        if (disks.length >= maxDisks) {
          const detail = `A ${kind.title} has at most ${maxDisks} disks`
          throw new Problem(409, 'too_many_disks', 'Too many disks', detail)
        }
        await claimDisk(kind, instance, mount)
        needsOwnPath(disks, mount)
      },
    })
  }, by.tenant_id)

/** Throws NotFound if the instance does not have the disk. */
export const acceptDetachDisk = (
  kind: InstanceKind,
  by: By,
  id: string,
  { disk_id }: { disk_id: string },
): AcceptedInstance =>
  transaction(async () => {
    const { disks } = await mine(kind.resource, by, id)
    const others = disks.filter((mount) => mount.disk_id !== disk_id)
    if (others.length === disks.length) throw new NotFound(`disk of the ${kind.title}`)
    return begin(kind, by, id, 'detach_disk', { input: { disk_id }, set: { disks: others } })
  }, by.tenant_id)

/** Throws NotFound (the subnet), NameTaken, and the 409s of subnets. */
export const acceptAttachNic = (kind: InstanceKind, by: By, id: string, asked: NewNic): AcceptedInstance => {
  const nic_id = newId()
  return begin(kind, by, id, 'attach_nic', {
    input: { nic_id },
    async reserve(instance) {
      const { name, tenant_id, managed_by } = instance
      await takeNics({ id, kind: kind.kind, name, tenant_id, managed_by }, [{ id: nic_id, ...asked }])
      const more = await kind.onNics?.(instance)
      if (more) await kind.model.updateOne({ _id: id, tenant_id }, { $set: more })
    },
  })
}

/** Throws NotFound if the instance does not have the NIC, and a 409 if the instance or a path needs it. */
export const acceptDetachNic = (
  kind: InstanceKind,
  by: By,
  id: string,
  { nic_id }: { nic_id: string },
): AcceptedInstance =>
  begin(kind, by, id, 'detach_nic', {
    input: { nic_id },
    async reserve(instance) {
      await mustHaveNic({ id, tenant_id: by.tenant_id }, nic_id)
      await needNoPath(by, nic_id)
      kind.mayLoseNic?.(instance)
    },
  })

/** The rules above by verb, for `accepts`. */
export const instanceVerbs = (kind: InstanceKind) => ({
  start: acceptStart.bind(null, kind),
  stop: acceptStop.bind(null, kind),
  reschedule: acceptReschedule.bind(null, kind),
  attach_disk: acceptAttachDisk.bind(null, kind),
  detach_disk: acceptDetachDisk.bind(null, kind),
  attach_nic: acceptAttachNic.bind(null, kind),
  detach_nic: acceptDetachNic.bind(null, kind),
})

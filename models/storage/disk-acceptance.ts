import { newId } from '../../lib/ids.ts'
import { InvalidInput, Problem, StateConflict } from '../../lib/problem.ts'
import { accepts, begin, type By, create } from '../acceptance.ts'
import type { PlacedKindName } from '../../lib/host-protocol.ts'
import { place } from '../compute/placement.ts'
import { placementTurn, reserve } from '../compute/reservations.ts'
import { transaction } from '../database.ts'
import { diskSize } from '../identity/tenants.ts'
import type { Accepted } from '../operations.ts'
import { mine } from '../resources.ts'
import { Disk, type DiskDocument, diskResource } from './disks.ts'
import { acceptMigration } from './moves.ts'
import { acceptSnapshot, acceptSnapshotRemoval, holdRoom, snapshotOf } from './snapshots.ts'

// The acceptance rules for operations on disks. Those for snapshots and moves are in snapshots.ts and moves.ts.

interface NewDisk {
  name: string
  tags: Record<string, string>
  /** Default: the size of the snapshot. */
  size_gib?: number | undefined
  /** The snapshot to copy, on the same host; null: an empty disk. */
  from_snapshot: { disk_id: string; name: string } | null
  /** An operator's choice of host. */
  host_id: string | null
  /** Instances and disks from whose hosts it is kept away, if another host has room. */
  apart_from?: string[]
  /** On a host that runs this kind. Default: on any. */
  for_kind?: PlacedKindName
  managed_by?: string | null
}

/**
 * Accepts a new disk, and reserves room on a host at once: lack of room fails the request, not the operation. Throws
 * NameTaken, NotFound (the snapshot), InvalidInput, StateConflict, QuotaExceeded and NoCapacity.
 */
export const acceptDisk = (
  by: By,
  {
    size_gib,
    from_snapshot: from,
    host_id,
    apart_from = [],
    for_kind,
    managed_by = null,
    ...fields
  }: NewDisk,
): Promise<Accepted<DiskDocument>> =>
  transaction(async () => {
    const source = from && (await sourceOf(by, from))
    const size = size_gib ?? source?.size_gib ?? 0
    if (source && size < source.size_gib) throw tooSmall(`its snapshot has ${source.size_gib} GiB`)
    if (source && host_id && host_id !== source.host_id)
      throw new Problem(409, 'snapshot_elsewhere', 'The snapshot is on another host')
    const written_by_machine = source?.written_by_machine ?? false
    const unplaced = { host_id: null, attached_to: null, condition: 'sound', transfer_sealed: '-' } as const
    return create(by, diskResource, {
      fields: { ...fields, size_gib: size, written_by_machine, ...unplaced },
      managed_by,
      input: { from: from && { disk_id: from.disk_id, snapshot: from.name } },
      reserve: async ({ _id, tenant_id }) => {
        await reserve(_id, tenant_id, diskSize(size))
        const constraints = { hostId: source?.host_id ?? host_id, apartFrom: apart_from }
        const host = await place(_id, {
          ...constraints,
          ...(for_kind ? { kind: for_kind } : {}),
        })
        const placed = { host_id: host._id }
        await Disk.updateOne({ _id, tenant_id }, { $set: placed })
        return placed
      },
    })
  }, placementTurn)

async function sourceOf(by: By, { disk_id, name }: { disk_id: string; name: string }) {
  const disk = await mine(diskResource, by, disk_id)
  const { size_gib } = await snapshotOf(disk, name)
  if (['migrating', 'deleting'].includes(disk.status)) throw new StateConflict('copy a snapshot', disk.status)
  return { host_id: disk.host_id, size_gib, written_by_machine: disk.written_by_machine }
}

/** Accepts a new disk with the content of the snapshot, named after the snapshot's disk. Throws as `acceptDisk`. */
export async function acceptRestore(by: By, id: string, snapshot: string): Promise<Accepted<DiskDocument>> {
  const { name, tags } = await mine(diskResource, by, id)
  return acceptDisk(by, {
    name: `${name.slice(0, 40)}-restored-${newId().slice(-12)}`,
    tags,
    from_snapshot: { disk_id: id, name: snapshot },
    host_id: null,
  })
}

interface DiskChanges {
  size_gib?: number | undefined
  tags?: Record<string, string> | undefined
}

/** Accepts a change, and reserves room for growth. Throws as `begin`, InvalidInput, QuotaExceeded and NoCapacity. */
export const acceptDiskUpdate = (by: By, id: string, changes: DiskChanges): Promise<Accepted<DiskDocument>> =>
  begin(by, diskResource, id, 'update', {
    input: { changes },
    reserve: async (disk) => {
      const { size_gib } = changes
      if (size_gib === undefined) return
      if (size_gib < disk.size_gib) throw tooSmall(`the disk has ${disk.size_gib} GiB, and never shrinks`)
      await holdRoom({ ...disk, size_gib })
    },
  })

/** Throws as `begin`, and StateConflict while an instance has the disk. */
export const acceptDiskDeletion = (by: By, id: string): Promise<Accepted<DiskDocument>> =>
  begin(by, diskResource, id, 'delete', {
    reserve: async ({ attached_to }) => {
      if (attached_to) throw new StateConflict('delete', 'attached')
    },
  })

const tooSmall = (why: string): InvalidInput =>
  new InvalidInput(422, [{ pointer: '/size_gib', message: `is too small: ${why}` }])

accepts(diskResource, {
  create: acceptDisk,
  verbs: {
    update: acceptDiskUpdate,
    delete: acceptDiskDeletion,
    snapshot: acceptSnapshot,
    remove_snapshot: acceptSnapshotRemoval,
    migrate: acceptMigration,
  },
})

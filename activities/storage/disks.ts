import { ApplicationFailure } from '@temporalio/activity'
import { Reservation, release } from '../../models/compute/reservations.ts'
import { Disk, type DiskDocument } from '../../models/storage/disks.ts'
import { arriveTogether, stayTogether } from '../../models/storage/moves.ts'
import { dropSnapshot, holdRoom, recordSnapshot, Snapshot } from '../../models/storage/snapshots.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { answering } from '../compute/answering.ts'

export const makeDiskActivities = () => ({
  /** The disk's host and recorded size. Throws `host_unreachable` if the host does not answer. */
  async diskPlace(id: string): Promise<{ host_id: string; size_gib: number }> {
    const { host_id, size_gib } = await diskOf(id)
    const there = await answering(host_id)
    if (there) return { host_id: there, size_gib }
    const detail = 'The disk’s host does not answer'
    throw ApplicationFailure.nonRetryable(detail, 'host_unreachable')
  },

  /** The hosts that may have parts of the disk and answer. The others remove them when they are back. */
  async hostsOfDisk(id: string): Promise<{ host_ids: string[] }> {
    const { host_id, tenant_id } = await diskOf(id)
    const held = await Reservation.findOne({ _id: id, tenant_id }).lean()
    const all = new Set([held?.host_id ?? host_id, held?.target_host_id ?? null])
    const there = await Promise.all([...all].map(answering))
    return { host_ids: there.filter((one) => one !== null) }
  },

  /** Releases the disk's reservation and deletes its snapshots' records. */
  async releaseDisk(id: string): Promise<void> {
    const { tenant_id } = await diskOf(id)
    await release(id)
    await Snapshot.deleteMany({ tenant_id, disk_id: id })
  },

  /** Reserves the recorded size again, after a change failed. */
  async holdRecordedRoom(id: string): Promise<void> {
    await holdRoom(await diskOf(id))
  },

  async snapshotTaken(id: string, name: string, taken: Taken): Promise<void> {
    await recordSnapshot(await diskOf(id), name, taken)
  },

  /** Deletes a snapshot's record; with `madeBy`, only if that operation made it. */
  async forgetSnapshot(id: string, name: string, madeBy: string | null): Promise<void> {
    await dropSnapshot(await diskOf(id), name, madeBy ?? undefined)
  },

  /** The source and target of a migration. The API reserved room on the target on acceptance. */
  async diskMove(id: string): Promise<{ from_host_id: string; host_id: string; name: string }> {
    const { host_id, tenant_id, name } = await diskOf(id)
    const held = await Reservation.findOne({ _id: id, tenant_id }).lean()
    const target = held?.target_host_id
    if (!target) throw ApplicationFailure.nonRetryable('The disk has no migration under way', 'not_placed')
    const from = await answering(host_id)
    if (!from) {
      const detail = 'The disk’s host does not answer, and no other host has a copy'
      throw ApplicationFailure.nonRetryable(detail, 'host_unreachable')
    }
    return { from_host_id: from, host_id: target, name }
  },

  diskArrived: (operationId: string): Promise<void> => arriveTogether(operationId),

  diskStays: (operationId: string): Promise<void> => stayTogether(operationId),
})

interface Taken {
  used_bytes: number
  taken_at: string
}

export type DiskActivities = ReturnType<typeof makeDiskActivities>

async function diskOf(id: string): Promise<DiskDocument> {
  const disk = await Disk.findById(id).setOptions(everyTenant).lean()
  if (!disk) throw ApplicationFailure.nonRetryable('The disk no longer exists', 'not_found')
  return disk
}

import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { NameTaken, NotFound } from '../../lib/problem.ts'
import { begin, type By } from '../acceptance.ts'
import { resize } from '../compute/reservations.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { diskSize } from '../identity/tenants.ts'
import type { Accepted } from '../operations.ts'
import { documentOptions, idField } from '../resources.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { type DiskDocument, diskResource } from './disks.ts'

/** A named point-in-time copy of a disk. It is on the disk's host and moves with the disk. */
export interface SnapshotDocument {
  _id: string
  tenant_id: string
  disk_id: string
  name: string
  status: 'creating' | 'available'
  /** The size of the disk at that moment. */
  size_gib: number
  /** The bytes it uses on its host; null until it is taken. */
  used_bytes: number | null
  /** Reserved in addition to the disk's own size. Until it is taken, the largest possible size. */
  reserved_gib: number
  taken_at: Date | null
  /** The operation that made it. Only this operation may undo it. */
  operation_id: string
  created_at: Date
  updated_at: Date
}

const schema = new Schema<SnapshotDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    disk_id: { type: String, required: true },
    name: { type: String, required: true },
    status: { type: String, required: true },
    size_gib: { type: Number, required: true },
    used_bytes: { type: Number, default: null },
    reserved_gib: { type: Number, required: true },
    taken_at: { type: Date, default: null },
    operation_id: { type: String, required: true },
  },
  { ...documentOptions, collection: 'disk_snapshots' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, disk_id: 1, name: 1 }, { unique: true })
export const Snapshot = mongoose.model<SnapshotDocument>('Snapshot', schema)

type Owner = Pick<DiskDocument, '_id' | 'tenant_id'>

/** Reserves room for a disk and its snapshots. Throws QuotaExceeded, NoCapacity. */
export async function holdRoom({ _id, tenant_id, size_gib }: Owner & { size_gib: number }): Promise<void> {
  const snapshots = await Snapshot.find({ tenant_id, disk_id: _id }, { reserved_gib: 1 }).lean()
  const all = snapshots.reduce((sum, { reserved_gib }) => sum + reserved_gib, size_gib)
  await resize(_id, tenant_id, diskSize(all))
}

/** Accepts a snapshot, and reserves room for it. Throws as `begin`, NameTaken, QuotaExceeded and NoCapacity. */
export const acceptSnapshot = (
  by: By,
  id: string,
  { name }: { name: string },
): Promise<Accepted<DiskDocument>> =>
  begin(by, diskResource, id, 'snapshot', { input: { name }, reserve: (disk) => addSnapshot(disk, name) })

/** Throws as `begin`, and NotFound for a snapshot that was never taken. */
export const acceptSnapshotRemoval = (
  by: By,
  id: string,
  { name }: { name: string },
): Promise<Accepted<DiskDocument>> =>
  begin(by, diskResource, id, 'remove_snapshot', {
    input: { name },
    reserve: async (disk) => {
      await snapshotOf(disk, name)
    },
  })

async function addSnapshot(disk: DiskDocument, name: string): Promise<void> {
  const { _id: disk_id, tenant_id, size_gib, operation_id } = disk
  const fields = { tenant_id, disk_id, name, size_gib, reserved_gib: size_gib, operation_id }
  try {
    await new Snapshot({ _id: newId(), status: 'creating', ...fields }).save()
  } catch (error) {
    if (isDuplicateKey(error)) throw new NameTaken('snapshot', name)
    throw error
  }
  await holdRoom(disk)
}

/** Records a snapshot as taken, and releases the room that it does not need. */
export async function recordSnapshot(
  disk: DiskDocument,
  name: string,
  { used_bytes, taken_at }: { used_bytes: number; taken_at: string },
): Promise<void> {
  const reserved_gib = Math.ceil(used_bytes / 1024 ** 3)
  await transaction(async () => {
    await Snapshot.updateOne(
      { tenant_id: disk.tenant_id, disk_id: disk._id, name },
      { $set: { status: 'available', used_bytes, reserved_gib, taken_at: new Date(taken_at) } },
    )
    await holdRoom(disk)
  }, disk.tenant_id)
}

/** Deletes the record of a snapshot, and releases its room. With `madeBy`, only if that operation made it. */
export async function dropSnapshot(disk: DiskDocument, name: string, madeBy?: string): Promise<void> {
  const by = madeBy === undefined ? {} : { operation_id: madeBy }
  await transaction(async () => {
    await Snapshot.deleteOne({ tenant_id: disk.tenant_id, disk_id: disk._id, name, ...by })
    await holdRoom(disk)
  }, disk.tenant_id)
}

/** Finds a snapshot that has been taken. Throws NotFound. */
export async function snapshotOf({ _id, tenant_id }: Owner, name: string): Promise<SnapshotDocument> {
  const found = await Snapshot.findOne({ tenant_id, disk_id: _id, name, status: 'available' }).lean()
  if (!found) throw new NotFound('snapshot')
  return found
}

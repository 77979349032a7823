import { newId } from '../../lib/ids.ts'
import { NotFound, StateConflict } from '../../lib/problem.ts'
import { begin, type By } from '../acceptance.ts'
import { transaction } from '../database.ts'
import { nextTime } from '../deploy/scheduled-tasks.ts'
import type { Accepted } from '../operations.ts'
import { Snapshot, snapshotOf } from '../storage/snapshots.ts'
import { everyTenant } from '../tenant-scope.ts'
import { RagDocument } from './documents.ts'
import { safelyBefore } from './lineage.ts'
import { RagStore, type RagStoreDocument, ragStoreResource } from './stores.ts'

// Snapshots of a store are snapshots of its disk, which pauses writers for a moment: each file of the store is as after a
// loss of power, from which SQLite recovers.

/** A snapshot that is later than this, because the platform was down, is missed. */
const latestMs = 60 * 60_000

/** Throws NotFound. */
async function storeOf({ tenant_id }: Pick<By, 'tenant_id'>): Promise<RagStoreDocument> {
  const store = await RagStore.findOne({ tenant_id }).lean()
  if (!store) throw new NotFound(ragStoreResource.title)
  return store
}

/** The disk with the store's snapshots. Null: there is no store, or it has none yet. */
export const diskOfSnapshots = async ({ tenant_id }: Pick<By, 'tenant_id'>): Promise<string | null> =>
  (await RagStore.findOne({ tenant_id }, { disk_id: 1 }).lean())?.disk_id ?? null

/** When snapshots are taken, and how many are kept. */
export interface SnapshotRules {
  /** Null: by hand alone. */
  timing: { frequency: string; timezone: string } | null
  keep: number
}

/** Throws NotFound. */
export async function setSnapshotRules(
  { tenant_id }: Pick<By, 'tenant_id'>,
  { timing, keep }: SnapshotRules,
): Promise<RagStoreDocument> {
  const next_at = timing && nextTime(timing, new Date())
  const store = await RagStore.findOneAndUpdate(
    { tenant_id },
    { $set: { snapshot_timing: timing, snapshots_kept: keep, next_snapshot_at: next_at } },
    { returnDocument: 'after' },
  ).lean()
  if (!store) throw new NotFound(ragStoreResource.title)
  return store
}

const nameAt = (at: Date): string =>
  `${at.toISOString().slice(0, 19).replaceAll(/[-:]/g, '').toLowerCase()}-${newId().slice(-6)}`

/** Accepts a snapshot, and the removal of those beyond the number that is kept. Throws NotFound, StateConflict, and as `begin`. */
export async function acceptStoreSnapshot(by: By): Promise<Accepted<RagStoreDocument>> {
  const { _id } = withDisk(await storeOf(by), 'snapshot')
  return begin(by, ragStoreResource, _id, 'snapshot', { input: { name: nameAt(new Date()) } })
}

/** Throws NotFound (also the snapshot), StateConflict, and as `begin`. */
export async function acceptStoreRestore(
  by: By,
  { snapshot }: { snapshot: string },
): Promise<Accepted<RagStoreDocument>> {
  const { _id, tenant_id, disk_id } = withDisk(await storeOf(by), 'restore')
  await snapshotOf({ _id: disk_id, tenant_id }, snapshot)
  return begin(by, ragStoreResource, _id, 'restore', { input: { snapshot } })
}

function withDisk<S extends RagStoreDocument>(store: S, verb: string): S & { disk_id: string } {
  const { disk_id } = store
  if (disk_id === null) throw new StateConflict(verb, store.status)
  return { ...store, disk_id }
}

/** The stores of all tenants whose snapshots are due, those that wait longest first. */
export const dueSnapshots = (limit: number): Promise<RagStoreDocument[]> =>
  RagStore.find({ next_snapshot_at: { $lte: new Date() } })
    .setOptions(everyTenant)
    .sort({ next_snapshot_at: 1 })
    .limit(limit)
    .lean()

/**
 * Begins the snapshot that is due, and sets the next time, together. A store that is not ready misses it. Nothing happens if
 * another worker has done so.
 */
export const beginDueSnapshot = ({
  _id,
  tenant_id,
  next_snapshot_at: due,
}: RagStoreDocument): Promise<void> =>
  transaction(async () => {
    const store = await RagStore.findOne({ _id, tenant_id, next_snapshot_at: due }).lean()
    if (!store || !due) return
    const now = new Date()
    const next = store.snapshot_timing && nextTime(store.snapshot_timing, now)
    await RagStore.updateOne({ _id, tenant_id, next_snapshot_at: due }, { $set: { next_snapshot_at: next } })
    if (store.status !== 'ready' || now.getTime() - due.getTime() > latestMs) return
    await acceptStoreSnapshot({ tenant_id, id: null })
  }, tenant_id)

/** Snapshots of a store's disk that are to be removed. */
export interface Unwanted {
  disk_id: string
  names: string[]
}

/** Those beyond the number that is kept, the oldest first. */
export async function surplusSnapshots(id: string): Promise<Unwanted | null> {
  const store = await RagStore.findById(id).setOptions(everyTenant).lean()
  if (!store?.disk_id) return null
  const { tenant_id, disk_id, snapshots_kept } = store
  const all = await Snapshot.find({ tenant_id, disk_id, status: 'available' }, { name: 1 })
    .sort({ created_at: -1, _id: -1 })
    .lean()
  const names = all.slice(snapshots_kept).map(({ name }) => name)
  return { disk_id, names: names.toReversed() }
}

/** Those that may have a document: all that were asked for since it was uploaded first. */
export async function snapshotsWith(documentId: string): Promise<Unwanted | null> {
  const document = await RagDocument.findById(documentId).setOptions(everyTenant).lean()
  if (!document || document.version === 0) return null // nothing of it has ever come
  const { tenant_id, created_at } = document
  const store = await RagStore.findOne({ tenant_id }, { disk_id: 1 }).lean()
  if (!store?.disk_id) return null
  const its = { tenant_id, disk_id: store.disk_id, created_at: { $gte: safelyBefore(created_at) } }
  const names = (await Snapshot.find(its, { name: 1 }).sort({ created_at: 1 }).lean()).map(({ name }) => name)
  return { disk_id: store.disk_id, names }
}

/** What a store that is restored from a snapshot has for sure. Throws NotFound. */
export async function contentOfSnapshot(
  { disk_id, tenant_id }: Pick<RagStoreDocument, 'disk_id' | 'tenant_id'>,
  name: string,
): Promise<{ until: Date }> {
  const { created_at } = await snapshotOf({ _id: disk_id ?? '', tenant_id }, name)
  return { until: safelyBefore(created_at) }
}

/** Makes the disk with a snapshot's content the store's own. Idempotent. */
export async function noteRestored(
  { _id, tenant_id, operation_id }: Pick<RagStoreDocument, '_id' | 'tenant_id' | 'operation_id'>,
  former: { disk_id: string; until: Date },
  disk_id: string,
): Promise<void> {
  await RagStore.updateOne(
    { _id, tenant_id, operation_id, disk_id: former.disk_id },
    { $set: { disk_id }, $push: { former_disks: former } },
  )
}

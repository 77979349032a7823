import mongoose, { type mongo, Schema } from 'mongoose'
import { type BlobStore, BlobMissing, makeS3Store, type S3Settings } from '../lib/blob-store.ts'
import { newId } from '../lib/ids.ts'
import { mapAtOnce } from '../lib/queue.ts'
import { BucketFault } from '../lib/tenant-buckets.ts'
import { schemaOptions } from './schemas.ts'
import { needStoreRoom } from './store-room.ts'

// Data too large for a document: in an S3 bucket if one is configured, else in GridFS. A reference to a blob names its
// store, so that the setting can change. Backups may be in buckets of tenants.

export type StoreName = 'gridfs' | 's3' | 'target'
export interface BlobName {
  key: string
  store: StoreName
  /** The backup target, if that is the store. */
  target_id?: string
}

/**
 * A blob to remove at `remove_at`: one that is being stored, until a reference to it is committed, or one without
 * references. No blob leaks, even if a process is killed at any point.
 */
interface UnwantedBlobDocument {
  /** The blob's key. */
  _id: string
  store: StoreName
  target_id: string | null
  remove_at: Date
}

const schema = new Schema<UnwantedBlobDocument>(
  {
    _id: { type: String, required: true },
    store: { type: String, required: true },
    target_id: { type: String, default: null },
    remove_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'unwanted_blobs' },
)
schema.index({ remove_at: 1 })
schema.index({ target_id: 1, remove_at: 1 }, { partialFilterExpression: { store: 'target' } })
export const UnwantedBlob = mongoose.model<UnwantedBlobDocument>('UnwantedBlob', schema)

/** Only GridFS until `useBlobStores`. */
let stores: { s3: BlobStore | null } = { s3: null }

export async function useBlobStores(
  settings: Omit<S3Settings, 'KEELSON_S3_BUCKET'> & { KEELSON_S3_BUCKET?: string | undefined },
): Promise<void> {
  const { KEELSON_S3_BUCKET } = settings
  stores = { s3: KEELSON_S3_BUCKET ? await makeS3Store({ ...settings, KEELSON_S3_BUCKET }) : null }
}

/** Null: the target is gone. */
type OpenTarget = (id: string) => Promise<BlobStore | null>
let openTarget: OpenTarget = () => Promise.reject(new Error('there are no backup targets'))

/** Says how the buckets of tenants are opened. */
export function storesOfTargets(open: OpenTarget): void {
  openTarget = open
}

// Longer than it takes to store a blob and to commit a reference to it.
const unfinishedMs = 3_600_000

// A full store takes a blob of this size, as it takes some more records.
const smallBytes = 1024

/**
 * Stores bytes, in the bucket of a tenant if one is given. They are removed after an hour unless a transaction with a
 * reference to them calls `keepBlob`. Throws StoreFull.
 */
export async function storeBlob(
  bytes: Uint8Array,
  within: { target_id: string; prefix: string } | null = null,
): Promise<BlobName> {
  const key = newId()
  const name: BlobName = within
    ? { key: `${within.prefix}${key}`, store: 'target', target_id: within.target_id }
    : { key, store: stores.s3 ? 's3' : 'gridfs' }
  if (name.store === 'gridfs' && bytes.length > smallBytes) await needStoreRoom()
  await new UnwantedBlob(unwanted(name, new Date(Date.now() + unfinishedMs))).save()
  try {
    await (await storeOf(name)).put(name.key, bytes)
  } catch (error) {
    await dropUnkept(name)
    throw error
  }
  return name
}

const unwanted = ({ key, store, target_id }: BlobName, remove_at: Date): UnwantedBlobDocument => ({
  _id: key,
  store,
  target_id: target_id ?? null,
  remove_at,
})

/**
 * Keeps a stored blob. Call in the transaction that adds a reference to it. Throws if the blob was stored too long ago.
 */
export async function keepBlob({ key }: BlobName): Promise<void> {
  const { deletedCount } = await UnwantedBlob.deleteOne({ _id: key })
  if (!deletedCount) throw new Error(`the blob ${key} is gone: it was stored too long ago`)
}

/** Schedules blobs for removal. Call in the transaction that removes the references to them. */
export async function dropBlobs(names: BlobName[]): Promise<void> {
  const remove_at = new Date()
  await UnwantedBlob.insertMany(names.map((name) => unwanted(name, remove_at)))
}

/** Schedules the removal of a stored blob that was not kept. */
export async function dropUnkept({ key }: BlobName): Promise<void> {
  await UnwantedBlob.updateOne({ _id: key }, { $set: { remove_at: new Date() } })
}

/** Throws BlobMissing. */
export const readBlob = async (name: BlobName): Promise<Buffer> => (await storeOf(name)).get(name.key)

/** The bytes of several blobs in their order. One of them is in memory at a time. Throws BlobMissing. */
export async function* readBlobs(names: BlobName[]): AsyncGenerator<Buffer> {
  for (const name of names) yield await readBlob(name)
}

const batch = 100

/**
 * Removes the blobs that are due from the stores that this process knows, and returns how many. Idempotent, and safe to
 * run in several processes. If a removal fails, it removes the others and then throws.
 */
export async function removeUnwantedBlobs(): Promise<number> {
  const known = stores.s3 ? (['gridfs', 's3'] as const) : (['gridfs'] as const)
  const due = await UnwantedBlob.find({ remove_at: { $lt: new Date() }, store: { $in: known } })
    .limit(batch)
    .lean()
  const faults: unknown[] = []
  for (const { _id, store: name } of due) {
    try {
      await storeNamed(name === 's3' ? 's3' : 'gridfs').remove(_id)
      await UnwantedBlob.deleteOne({ _id })
    } catch (error) {
      faults.push(error)
    }
  }
  if (faults.length) throw new AggregateError(faults, `${faults.length} blobs were not removed`)
  return due.length
}

const perTarget = 100
const removedAtOnce = 4
const tryAgainMs = 600_000

/**
 * Removes the blobs that are due from the buckets of tenants, and returns how many. A bucket that fails
 * delays only the removal of its own blobs, which is tried again later.
 */
export async function removeUnwantedObjects(
  tell: (target_id: string, reason: string) => void,
): Promise<number> {
  const due = { store: 'target' as const, remove_at: { $lt: new Date() } }
  const targets = await UnwantedBlob.distinct('target_id', due)
  const counts = await mapAtOnce(targets, removedAtOnce, async (target_id) => {
    if (target_id === null) return 0
    const some = await UnwantedBlob.find({ ...due, target_id })
      .limit(perTarget)
      .lean()
    try {
      const store = await openTarget(target_id)
      await mapAtOnce(some, removedAtOnce, async ({ _id }) => {
        await store?.remove(_id).catch((error: unknown) => {
          // It went with its bucket.
          if (!(error instanceof BucketFault && error.reason === 'no_such_bucket')) throw error
        })
        await UnwantedBlob.deleteOne({ _id })
      })
      return some.length
    } catch (error) {
      tell(target_id, error instanceof Error ? error.message : String(error))
      const remove_at = new Date(Date.now() + tryAgainMs)
      await UnwantedBlob.updateMany({ ...due, target_id }, { $set: { remove_at } })
      return 0
    }
  })
  return counts.reduce((sum, count) => sum + count, 0)
}

async function storeOf({ store, target_id }: BlobName): Promise<BlobStore> {
  if (store !== 'target') return storeNamed(store)
  const target = await openTarget(target_id ?? '')
  if (!target) throw new Error('a blob is in a bucket that the platform no longer knows')
  return target
}

function storeNamed(name: Exclude<StoreName, 'target'>): BlobStore {
  if (name === 'gridfs') return gridFs
  if (!stores.s3) throw new Error('a blob is in S3, and no bucket is set')
  return stores.s3
}

let bucket: mongo.GridFSBucket | undefined
function bucketOf(): mongo.GridFSBucket {
  const { db } = mongoose.connection
  if (!db) throw new Error('connectDatabase was not called')
  return (bucket ??= new mongoose.mongo.GridFSBucket(db, { bucketName: 'blobs' }))
}

// The driver sends all chunks of a blob at once. For each megabyte MongoDB takes 3 ms of CPU time in chunks of this size, and 8
// in one of 8 MiB (docs/performance.md).
const chunkAtMost = 1024 ** 2

// Our keys are strings, but the driver's types allow only its own ids.
const asId = (key: string): mongo.ObjectId => key as unknown as mongo.ObjectId

/** The driver has no error class for this. */
const isNotFound = (error: unknown): boolean =>
  error instanceof Error && error.message.includes('File not found')

const gridFs: BlobStore = {
  put: (key, bytes) =>
    new Promise((resolve, reject) => {
      const chunkSizeBytes = Math.min(Math.max(bytes.length, 1), chunkAtMost)
      const upload = bucketOf().openUploadStreamWithId(asId(key), key, { chunkSizeBytes })
      upload.once('error', reject).once('finish', () => resolve())
      upload.end(bytes)
    }),
  get: (key) =>
    // Not `buffer`, which copies twice.
    Array.fromAsync(bucketOf().openDownloadStream(asId(key)))
      .then((chunks: Buffer[]) => (chunks.length === 1 && chunks[0]) || Buffer.concat(chunks))
      .catch((error: unknown) => {
        throw isNotFound(error) ? new BlobMissing(key, error) : error
      }),
  async remove(key) {
    await bucketOf()
      .delete(asId(key))
      .catch((error: unknown) => {
        if (!isNotFound(error)) throw error
      })
  },
}

import mongoose, { type mongo, Schema } from 'mongoose'
import { buffer } from 'node:stream/consumers'
import { type BlobStore, makeS3Store, type S3Settings } from '../lib/blob-store.ts'
import { newId } from '../lib/ids.ts'
import { schemaOptions } from './schemas.ts'

// Data too large for a document: in an S3 bucket if one is configured, else in GridFS. A reference to a blob names its
// store, so that the setting can change.

export type StoreName = 'gridfs' | 's3'
export interface BlobName {
  key: string
  store: StoreName
}

/**
 * A blob to remove at `remove_at`: one that is being stored, until a reference to it is committed, or one without
 * references. No blob leaks, even if a process is killed at any point.
 */
interface UnwantedBlobDocument {
  /** The blob's key. */
  _id: string
  store: StoreName
  remove_at: Date
}

const schema = new Schema<UnwantedBlobDocument>(
  {
    _id: { type: String, required: true },
    store: { type: String, required: true },
    remove_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'unwanted_blobs' },
)
schema.index({ remove_at: 1 })
export const UnwantedBlob = mongoose.model<UnwantedBlobDocument>('UnwantedBlob', schema)

/** Only GridFS until `useBlobStores`. */
let stores: { s3: BlobStore | null } = { s3: null }

export async function useBlobStores(
  settings: Omit<S3Settings, 'KEELSON_S3_BUCKET'> & { KEELSON_S3_BUCKET?: string | undefined },
): Promise<void> {
  const { KEELSON_S3_BUCKET } = settings
  stores = { s3: KEELSON_S3_BUCKET ? await makeS3Store({ ...settings, KEELSON_S3_BUCKET }) : null }
}

// Longer than it takes to store a blob and to commit a reference to it.
const unfinishedMs = 3_600_000

/** Stores bytes. They are removed after an hour unless a transaction with a reference to them calls `keepBlob`. */
export async function storeBlob(bytes: Uint8Array): Promise<BlobName> {
  const name: BlobName = { key: newId(), store: stores.s3 ? 's3' : 'gridfs' }
  await UnwantedBlob.create({
    _id: name.key,
    store: name.store,
    remove_at: new Date(Date.now() + unfinishedMs),
  })
  await storeNamed(name.store).put(name.key, bytes)
  return name
}

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
  await UnwantedBlob.insertMany(names.map(({ key, store }) => ({ _id: key, store, remove_at })))
}

/** Schedules the removal of a stored blob that was not kept. */
export async function dropUnkept({ key }: BlobName): Promise<void> {
  await UnwantedBlob.updateOne({ _id: key }, { $set: { remove_at: new Date() } })
}

export const readBlob = ({ key, store }: BlobName): Promise<Buffer> => storeNamed(store).get(key)

const batch = 100

/**
 * Removes the blobs that are due from the stores that this process knows, and returns how many. Idempotent, and safe to
 * run in several processes. If a removal fails, it removes the others and then throws.
 */
export async function removeUnwantedBlobs(): Promise<number> {
  const known: StoreName[] = stores.s3 ? ['gridfs', 's3'] : ['gridfs']
  const unwanted = await UnwantedBlob.find({ remove_at: { $lt: new Date() }, store: { $in: known } })
    .limit(batch)
    .lean()
  const faults: unknown[] = []
  for (const { _id, store: name } of unwanted) {
    try {
      await storeNamed(name).remove(_id)
      await UnwantedBlob.deleteOne({ _id })
    } catch (error) {
      faults.push(error)
    }
  }
  if (faults.length) throw new AggregateError(faults, `${faults.length} blobs were not removed`)
  return unwanted.length
}

function storeNamed(name: StoreName): BlobStore {
  if (name === 'gridfs') return gridFs
  if (!stores.s3) throw new Error('a blob is in S3, and no bucket is set')
  return stores.s3
}

let bucket: mongo.GridFSBucket | undefined
function bucketOf(): mongo.GridFSBucket {
  const { db } = mongoose.connection
  if (!db) throw new Error('connectDatabase was not called')
  // Large chunks: most blobs then fit into one, and each chunk costs a round trip.
  return (bucket ??= new mongoose.mongo.GridFSBucket(db, {
    bucketName: 'blobs',
    chunkSizeBytes: 8 * 1024 * 1024,
  }))
}

// Our keys are strings, but the driver's types allow only its own ids.
const asId = (key: string): mongo.ObjectId => key as unknown as mongo.ObjectId

const gridFs: BlobStore = {
  put: (key, bytes) =>
    new Promise((resolve, reject) => {
      const upload = bucketOf().openUploadStreamWithId(asId(key), key)
      upload.once('error', reject).once('finish', () => resolve())
      upload.end(bytes)
    }),
  get: (key) => buffer(bucketOf().openDownloadStream(asId(key))),
  async remove(key) {
    await bucketOf()
      .delete(asId(key))
      .catch((error: unknown) => {
        // The driver has no error class for this.
        if (!(error instanceof Error) || !error.message.startsWith('File not found')) throw error
      })
  },
}

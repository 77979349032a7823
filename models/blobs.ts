import mongoose, { type mongo, Schema } from 'mongoose'
import { buffer } from 'node:stream/consumers'
import { type BlobStore, makeS3Store, type S3Settings } from '../lib/blob-store.ts'
import { newId } from '../lib/ids.ts'
import { schemaOptions } from './schemas.ts'

// Bytes that are too many for a document: in GridFS, or in a bucket of S3 where there is one. Whoever refers to a blob keeps
// in which of the two it is, so that the setting may change.

export type StoreName = 'gridfs' | 's3'
export interface BlobName {
  key: string
  store: StoreName
}

/**
 * A blob that is to be removed then: one that somebody began to store, until what refers to it is committed, and one that
 * nothing refers to any more. So none is forgotten, whoever is killed when.
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

/** GridFS alone until `useBlobStores`. */
let stores: { s3: BlobStore | null } = { s3: null }

export async function useBlobStores(
  settings: Omit<S3Settings, 'KEELSON_S3_BUCKET'> & { KEELSON_S3_BUCKET?: string | undefined },
): Promise<void> {
  const { KEELSON_S3_BUCKET } = settings
  stores = { s3: KEELSON_S3_BUCKET ? await makeS3Store({ ...settings, KEELSON_S3_BUCKET }) : null }
}

// Longer than it takes to store a blob and to commit what refers to it.
const unfinishedMs = 3_600_000

/** Stores bytes, and has `commit` refer to them, in a transaction that begins with `wanted`. Where that fails they go again. */
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

/** In the transaction that makes something refer to it: it stays. */
export async function keepBlob({ key }: BlobName): Promise<void> {
  const { deletedCount } = await UnwantedBlob.deleteOne({ _id: key })
  if (!deletedCount) throw new Error(`the blob ${key} is gone: it was stored too long ago`)
}

/** In the transaction after which nothing refers to them: they are removed soon. */
export async function dropBlobs(names: BlobName[]): Promise<void> {
  const remove_at = new Date()
  await UnwantedBlob.insertMany(names.map(({ key, store }) => ({ _id: key, store, remove_at })))
}

/** What was stored and is not referred to after all. */
export async function dropUnkept({ key }: BlobName): Promise<void> {
  await UnwantedBlob.updateOne({ _id: key }, { $set: { remove_at: new Date() } })
}

export const readBlob = ({ key, store }: BlobName): Promise<Buffer> => storeNamed(store).get(key)

const batch = 100

/**
 * Removes what nothing refers to, from the stores that this process knows. Returns how many blobs went. May be repeated, and
 * run by several. Throws where one could not be removed, after the others.
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
  // A blob is one document as a rule: several cost a round trip each.
  return (bucket ??= new mongoose.mongo.GridFSBucket(db, {
    bucketName: 'blobs',
    chunkSizeBytes: 8 * 1024 * 1024,
  }))
}

// Their keys are texts, where the driver's types know its own ids only.
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
        // The driver has no class for it.
        if (!(error instanceof Error) || !error.message.startsWith('File not found')) throw error
      })
  },
}

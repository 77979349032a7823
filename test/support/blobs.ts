import mongoose from 'mongoose'
import type { BlobName } from '../../models/blobs.ts'

interface Chunk {
  files_id: string
  n: number
  data: mongoose.mongo.Binary
}

const chunks = () => mongoose.connection.collection<Chunk>('blobs.chunks')

/** The bytes of a blob in MongoDB, as they are stored. */
export async function storedBytes({ key }: BlobName): Promise<Buffer> {
  const found = await chunks().find({ files_id: key }).sort({ n: 1 }).toArray()
  return Buffer.concat(found.map(({ data }) => Buffer.from(data.value())))
}

/** The keys of all blobs in MongoDB. */
export const storedBlobs = async (): Promise<string[]> =>
  (
    await mongoose.connection
      .collection<{ _id: string }>('blobs.files')
      .find({}, { projection: { _id: 1 } })
      .toArray()
  ).map(({ _id }) => _id)

/** Changes one byte in the middle of a blob's first chunk. */
export async function spoil({ key }: BlobName): Promise<void> {
  const chunk = await chunks().findOne({ files_id: key, n: 0 })
  if (!chunk) throw new Error('there is no such blob')
  const bytes = Buffer.from(chunk.data.value())
  const at = Math.floor(bytes.length / 2)
  bytes[at] = (bytes[at] ?? 0) ^ 1
  await chunks().updateOne({ _id: chunk._id }, { $set: { data: new mongoose.mongo.Binary(bytes) } })
}

import mongoose, { Schema } from 'mongoose'
import { type BlobName, dropBlobs } from './blobs.ts'
import { schemaOptions } from './schemas.ts'

/** A blob to which more than one record refers. */
interface BlobShareDocument {
  /** The blob's key. */
  _id: string
  /** References beyond the first: one or more. */
  others: number
}

const schema = new Schema<BlobShareDocument>(
  { _id: { type: String, required: true }, others: { type: Number, required: true } },
  { ...schemaOptions, collection: 'blob_shares' },
)
export const BlobShare = mongoose.model<BlobShareDocument>('BlobShare', schema)

/**
 * Counts a further reference to a blob. Call in the transaction that adds it. The same transaction must write the record from
 * which the reference was copied, so that the removal of that one contends with it.
 */
export async function shareBlob({ key }: BlobName): Promise<void> {
  await BlobShare.updateOne({ _id: key }, { $inc: { others: 1 } }, { upsert: true })
}

/** Takes back one reference to each, and schedules the blobs without another for removal. Call in the transaction that removes them. */
export async function dropReferences(names: BlobName[]): Promise<void> {
  const last: BlobName[] = []
  for (const name of names) {
    const { key: _id } = name
    const { deletedCount } = await BlobShare.deleteOne({ _id, others: 1 })
    if (deletedCount) continue
    const { matchedCount } = await BlobShare.updateOne({ _id }, { $inc: { others: -1 } })
    if (!matchedCount) last.push(name)
  }
  if (last.length > 0) await dropBlobs(last)
}

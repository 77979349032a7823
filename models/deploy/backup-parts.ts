import mongoose, { Schema } from 'mongoose'
import { partMissingCode, targetFailedCode } from '../../lib/backup-protocol.ts'
import { BlobMissing } from '../../lib/blob-store.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import { BucketFault } from '../../lib/tenant-buckets.ts'
import { type BlobName, dropBlobs, dropUnkept, keepBlob, readBlob, storeBlob } from '../blobs.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { documentOptions, idField } from '../resources.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { BackupExecution, type BackupExecutionDocument } from './backup-executions.ts'

/** A sealed part of a copy (lib/backup-protocol.ts). */
interface BackupPartDocument {
  _id: string
  tenant_id: string
  execution_id: string
  attempt: number
  index: number
  blob: BlobName
  bytes: number
  created_at: Date
  updated_at: Date
}

const schema = new Schema<BackupPartDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    execution_id: { type: String, required: true },
    attempt: { type: Number, required: true },
    index: { type: Number, required: true },
    blob: { type: Schema.Types.Mixed, required: true },
    bytes: { type: Number, required: true },
  },
  { ...documentOptions, collection: 'backup_parts' },
)
tenantScoped(schema)
schema.index({ execution_id: 1, attempt: 1, index: 1 }, { unique: true })
export const BackupPart = mongoose.model<BackupPartDocument>('BackupPart', schema)

type Of = Pick<BackupExecutionDocument, '_id' | 'tenant_id' | 'attempt'>

/**
 * Keeps a part of this attempt, if it is the present one. A part that is there already stays. Throws NotFound and
 * `backup_target_failed`.
 */
export async function keepPart(
  {
    _id,
    tenant_id,
    attempt,
    target_id,
    location,
  }: Of & Pick<BackupExecutionDocument, 'target_id' | 'location'>,
  index: number,
  bytes: Buffer,
): Promise<void> {
  const within = target_id ? { target_id, prefix: `${prefixIn(location ?? '')}${attempt}-${index}-` } : null
  const blob = await storeBlob(bytes, within).catch(targetFailed)
  try {
    await transaction(async () => {
      // The count conflicts with the begin of a later attempt, which drops the parts of this one. A write that changes
      // nothing would not.
      const present = { _id, tenant_id, attempt, copy: null }
      const { matchedCount } = await BackupExecution.updateOne(present, { $inc: { kept_parts: 1 } })
      if (matchedCount === 0) throw new NotFound('attempt of the backup')
      await keepBlob(blob)
      const part = { tenant_id, execution_id: _id, attempt, index, blob, bytes: bytes.length }
      await new BackupPart(part).save()
    }, _id)
  } catch (error) {
    await dropUnkept(blob)
    if (!isDuplicateKey(error)) throw error
  }
}

/** Throws NotFound, `part_missing` and `backup_target_failed`. */
export async function readPart({ _id, tenant_id, attempt }: Of, index: number): Promise<Buffer> {
  const part = await BackupPart.findOne({ execution_id: _id, tenant_id, attempt, index }).lean()
  if (!part) throw new NotFound('part of the backup')
  try {
    return await readBlob(part.blob)
  } catch (error) {
    if (error instanceof BlobMissing)
      throw new Problem(404, partMissingCode, 'The part is no longer stored', undefined, { cause: error })
    return targetFailed(error)
  }
}

/** `s3://bucket/` is followed by the prefix of the names of the objects. */
export const prefixIn = (location: string): string => location.replace(/^s3:\/\/[^/]*\//, '')

/** The host tries again after a 503. The title becomes the reason of a backup that fails. */
export function targetFailed(error: unknown): never {
  if (!(error instanceof BucketFault)) throw error
  const title = `The backup target failed: ${error.message}`
  throw new Problem(error.passes ? 503 : 409, targetFailedCode, title, undefined, { cause: error })
}

const batch = 500

/** Removes parts of an execution, of all attempts or those before this one. Returns whether there may be more. */
export const dropParts = ({ _id, tenant_id }: Omit<Of, 'attempt'>, before?: number): Promise<boolean> =>
  transaction(async () => {
    const of = { execution_id: _id, tenant_id, ...(before === undefined ? {} : { attempt: { $lt: before } }) }
    const parts = await BackupPart.find(of, { blob: 1 }).limit(batch).lean()
    if (parts.length === 0) return false
    await dropBlobs(parts.map(({ blob }) => blob))
    await BackupPart.deleteMany({ _id: { $in: parts.map((part) => part._id) }, tenant_id })
    return parts.length === batch
  }, _id)

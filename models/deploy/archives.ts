import { randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { documentOptions, idField } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { holdTarget } from './backup-targets.ts'
import type { DatabaseDocument } from './databases.ts'

// The archives of databases' logs. An archive is the log of one volume without a gap. It ends with the volume, if a segment
// is lost, or if the database is no longer to be recovered to any moment; its segments stay as long as a base needs them.

export interface ArchiveDocument {
  _id: string
  tenant_id: string
  deploy_server_id: string
  database_id: string
  /** The tenant's bucket that it is in. Null: the platform's storage. */
  target_id: string | null
  /** `s3://bucket/prefix/` */
  location: string | null
  /** Sealed: the key of its segments. */
  key_sealed: string
  /** Segments are added to it. A database has at most one such archive. */
  is_current: boolean
  /** Since when the volume is known to have it. */
  opened_at: Date | null
  /** Stored last. */
  last_segment: string | null
  /** All that was committed until then is in it. */
  latest: Date | null
  /** The last moment before a commit that is in it. Nothing was committed from then until `latest`. */
  ticked_at: Date | null
  /** When the host last told of it. */
  told_at: Date
  stored_bytes: number
  /** Those that could not be read as they were written. */
  damaged_segments: string[]
  /** Why no segments are added. */
  paused_reason: string | null
  /** When the platform looks whether it has a base. */
  base_due_at: Date | null
  /** Segments may be there that no base needs. */
  is_untidy: boolean
  created_at: Date
  updated_at: Date
}

const date = { type: Date, default: null }
const text = { type: String, default: null }
const schema = new Schema<ArchiveDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    deploy_server_id: { type: String, required: true },
    database_id: { type: String, required: true },
    target_id: text,
    location: text,
    key_sealed: { type: String, required: true },
    is_current: { type: Boolean, required: true },
    opened_at: date,
    last_segment: text,
    latest: date,
    ticked_at: date,
    told_at: { type: Date, required: true },
    stored_bytes: { type: Number, default: 0 },
    damaged_segments: { type: [String], default: [] },
    paused_reason: text,
    base_due_at: date,
    is_untidy: { type: Boolean, default: false },
  },
  { ...documentOptions, collection: 'archives' },
)
tenantScoped(schema)
schema.index({ database_id: 1 }, { unique: true, partialFilterExpression: { is_current: true } })
schema.index({ database_id: 1, created_at: 1 })
schema.index({ deploy_server_id: 1 })
schema.index({ target_id: 1 }, { partialFilterExpression: { target_id: { $type: 'string' } } })
schema.index({ base_due_at: 1 }, { partialFilterExpression: { is_current: true } })
schema.index({ told_at: 1 }, { partialFilterExpression: { is_current: true } })
schema.index({ is_untidy: 1 }, { partialFilterExpression: { is_untidy: true } })
export const Archive = mongoose.model<ArchiveDocument>('Archive', schema)

const keyContext = (id: string): string => `archives.key:${id}`
sealedField(Archive, 'key_sealed', ({ _id }) => keyContext(_id))
export const archiveKeyOf = ({ _id, key_sealed }: ArchiveDocument): Promise<string> =>
  unsealSecret<string>(key_sealed, keyContext(_id))

type Of = Pick<DatabaseDocument, '_id' | 'tenant_id'>

export const currentArchive = ({ _id: database_id, tenant_id }: Of): Promise<ArchiveDocument | null> =>
  Archive.findOne({ database_id, tenant_id, is_current: true }).lean()

/** All of a database, also of one that is deleted, the oldest first. */
export const archivesOf = ({ _id: database_id, tenant_id }: Of): Promise<ArchiveDocument[]> =>
  Archive.find({ database_id, tenant_id }).sort({ created_at: 1 }).lean()

/** Begins an archive, in the caller's transaction. Throws InvalidInput if there is no such target. */
export async function beginArchive(
  {
    _id: database_id,
    tenant_id,
    deploy_server_id,
  }: Pick<DatabaseDocument, '_id' | 'tenant_id' | 'deploy_server_id'>,
  target_id: string | null,
  paused_reason: string | null = null,
): Promise<void> {
  const _id = newId()
  const target = target_id === null ? null : await holdTarget(tenant_id, target_id)
  await new Archive({
    _id,
    tenant_id,
    deploy_server_id,
    database_id,
    target_id,
    location: target && `s3://${target.bucket}/${target.prefix}${database_id}/log-${_id}/`,
    key_sealed: await sealSecret(randomBytes(32).toString('base64'), keyContext(_id)),
    is_current: true,
    told_at: new Date(),
    paused_reason,
  }).save()
}

/** Ends the present archive of a database, in the caller's transaction. */
export async function endArchive({ _id: database_id, tenant_id }: Of): Promise<void> {
  const ended = { is_current: false, base_due_at: null, is_untidy: true }
  await Archive.updateOne({ database_id, tenant_id, is_current: true }, { $set: ended })
}

/** Has its segments looked through for those that no base needs any more. */
export async function noteUntidy(archiveId: string): Promise<void> {
  await Archive.updateOne({ _id: archiveId }, { $set: { is_untidy: true } }).setOptions(everyTenant)
}

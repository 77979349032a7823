import mongoose, { Schema } from 'mongoose'
import { partMissingCode } from '../../lib/backup-protocol.ts'
import { type SegmentPlace, segmentsBetween } from '../../lib/archive-protocol.ts'
import { BlobMissing } from '../../lib/blob-store.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import { type BlobName, dropBlobs, dropUnkept, keepBlob, readBlob, storeBlob } from '../blobs.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { documentOptions, idField } from '../resources.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { Archive, type ArchiveDocument } from './archives.ts'
import { BackupExecution } from './backup-executions.ts'
import { prefixIn, targetFailed } from './backup-parts.ts'

/** A sealed segment of an archive (lib/archive-protocol.ts). */
interface SegmentDocument {
  _id: string
  tenant_id: string
  archive_id: string
  name: string
  /** All that was committed until then is in it and in those before. Null: not known. */
  ticked_at: Date | null
  /** All that it has was committed later. Null: not known. */
  after: Date | null
  blob: BlobName
  bytes: number
  created_at: Date
  updated_at: Date
}

const schema = new Schema<SegmentDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    archive_id: { type: String, required: true },
    name: { type: String, required: true },
    ticked_at: { type: Date, default: null },
    after: { type: Date, default: null },
    blob: { type: Schema.Types.Mixed, required: true },
    bytes: { type: Number, required: true },
  },
  { ...documentOptions, collection: 'archive_segments' },
)
tenantScoped(schema)
schema.index({ archive_id: 1, name: 1 }, { unique: true })
schema.index({ archive_id: 1, ticked_at: 1 })
export const ArchiveSegment = mongoose.model<SegmentDocument>('ArchiveSegment', schema)

/** A segment between two was lost. */
export class SegmentGap extends Problem {
  constructor(name: string) {
    super(409, 'segment_gap', 'A segment is missing', `The segment before ${name} was not archived`)
  }
}

/**
 * Keeps the next segment of an archive. One that was stored already stays as it is. Throws NotFound if the archive has
 * ended, SegmentGap, and `backup_target_failed`.
 */
export async function keepSegment(
  { _id, tenant_id, target_id, location }: ArchiveDocument,
  { name, ticked_at }: SegmentPlace,
  bytes: Buffer,
): Promise<void> {
  if (await isThere(_id, tenant_id, name)) return
  const within = target_id ? { target_id, prefix: `${prefixIn(location ?? '')}${name}-` } : null
  const blob = await storeBlob(bytes, within).catch(targetFailed)
  try {
    await transaction(async () => {
      const there = await isThere(_id, tenant_id, name)
      if (there) return dropUnkept(blob)
      const archive = await Archive.findOne({ _id, tenant_id }, { latest: 1 }).lean()
      await keepBlob(blob)
      const tick = ticked_at === undefined ? null : new Date(ticked_at)
      const times = { ticked_at: tick, after: archive?.latest ?? null }
      await new ArchiveSegment({
        tenant_id,
        archive_id: _id,
        name,
        ...times,
        blob,
        bytes: bytes.length,
      }).save()
      const told = { last_segment: name, told_at: new Date(), paused_reason: null }
      await Archive.updateOne(
        { _id, tenant_id, is_current: true },
        {
          $set: { ...told, ...(tick && { latest: tick, ticked_at: tick }) },
          $inc: { stored_bytes: bytes.length },
        },
      )
    }, _id)
  } catch (error) {
    await dropUnkept(blob)
    if (!isDuplicateKey(error)) throw error
  }
}

/** Throws NotFound and SegmentGap unless it was stored already, or is the next. */
async function isThere(_id: string, tenant_id: string, name: string): Promise<boolean> {
  const archive = await Archive.findOne({ _id, tenant_id, is_current: true }).lean()
  if (!archive) throw new NotFound('archive')
  const { last_segment } = archive
  if (last_segment === null) return false
  if (name <= last_segment) return true
  if (segmentsBetween(last_segment, name).length !== 2) throw new SegmentGap(name)
  return false
}

const missing = (cause?: unknown): Problem =>
  new Problem(404, partMissingCode, 'The segment is no longer stored', undefined, { cause })

/** Throws `part_missing` and `backup_target_failed`. */
export async function readSegment(tenant_id: string, archive_id: string, name: string): Promise<Buffer> {
  const segment = await ArchiveSegment.findOne({ archive_id, tenant_id, name }).lean()
  if (!segment) throw missing()
  try {
    return await readBlob(segment.blob)
  } catch (error) {
    if (error instanceof BlobMissing) throw missing(error)
    return targetFailed(error)
  }
}

/** The first segment at whose end everything is there that was committed until a moment. Null: none is stored yet. */
export const segmentAfter = async (
  { _id: archive_id, tenant_id }: Pick<ArchiveDocument, '_id' | 'tenant_id'>,
  moment: Date,
): Promise<string | null> =>
  (
    await ArchiveSegment.findOne({ archive_id, tenant_id, ticked_at: { $gte: moment } })
      .sort({ ticked_at: 1 })
      .lean()
  )?.name ?? null

/** To where the log leads that follows on a base, whose first segment is `start`. */
export interface LogEnd {
  /** The last moment to which it leads. Null: to none yet. */
  latest: Date | null
  /** The last moment before a commit that is in it: nothing was committed from then until `latest`. */
  ticked_at: Date | null
  /** A segment is damaged: it leads to the moments before that. */
  is_cut_off: boolean
}

export async function logEnd(archive: ArchiveDocument, start: string): Promise<LogEnd> {
  const { _id: archive_id, tenant_id, latest, ticked_at, damaged_segments } = archive
  const name = damaged_segments.toSorted().find((one) => one >= start)
  if (name === undefined) return { latest, ticked_at, is_cut_off: false }
  const damaged = await ArchiveSegment.findOne({ archive_id, tenant_id, name }).lean()
  const ticked = { archive_id, tenant_id, name: { $lt: name }, ticked_at: { $ne: null } }
  const last = await ArchiveSegment.findOne(ticked).sort({ name: -1 }).lean()
  return { latest: damaged?.after ?? null, ticked_at: last?.ticked_at ?? null, is_cut_off: true }
}

/** Archives of all tenants that may have segments that no base needs. */
export const untidyArchives = (limit: number): Promise<ArchiveDocument[]> =>
  Archive.find({ is_untidy: true }).setOptions(everyTenant).limit(limit).lean()

const batch = 200

/**
 * Removes segments that no base needs: those before the oldest one's, and all of an archive that has ended without a base.
 * Idempotent: what is left is looked for again.
 */
export const tidyArchive = ({ _id, tenant_id }: ArchiveDocument): Promise<void> =>
  transaction(async () => {
    const archive = await Archive.findOne({ _id, tenant_id }).lean()
    if (!archive) return
    const bases = await BackupExecution.find({ archive_id: _id, tenant_id }, { copy: 1, status: 1 }).lean()
    const starts = bases.flatMap(({ copy }) => copy?.base?.start ?? []).toSorted()
    const isWanted = archive.is_current || bases.some(({ status }) => status === 'creating')
    const oldest = starts[0]
    const unneeded = oldest === undefined ? (isWanted ? null : {}) : { name: { $lt: oldest } }
    const found = unneeded
      ? await ArchiveSegment.find({ ...unneeded, archive_id: _id, tenant_id }, { blob: 1, bytes: 1 })
          .limit(batch)
          .lean()
      : []
    if (found.length) {
      await dropBlobs(found.map(({ blob }) => blob))
      await ArchiveSegment.deleteMany({ _id: { $in: found.map((one) => one._id) }, tenant_id })
    }
    if (found.length < batch && oldest === undefined && !isWanted) {
      await Archive.deleteOne({ _id, tenant_id })
      return
    }
    const bytes = found.reduce((sum, one) => sum + one.bytes, 0)
    const change = { $inc: { stored_bytes: -bytes }, $set: { is_untidy: found.length === batch } }
    await Archive.updateOne({ _id, tenant_id }, change)
  }, _id)

/** Removes all archives of a deploy server. Call when nothing uses them any more. */
export async function forgetArchives(tenant_id: string, deploy_server_id: string): Promise<void> {
  const its = { tenant_id, deploy_server_id }
  await Archive.updateMany(its, { $set: { is_current: false } })
  for (const archive of await Archive.find(its).lean())
    while (await Archive.exists({ _id: archive._id, tenant_id })) await tidyArchive(archive)
}

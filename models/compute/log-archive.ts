import { createSecretKey, randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { type KeyRing, seal, unseal } from '../../lib/seal.ts'
import type { LogPiece as SentPiece } from '../../lib/host-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { type BlobName, dropBlobs, dropUnkept, keepBlob, readBlob, storeBlob } from '../blobs.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { limitOf, Tenant } from '../identity/tenants.ts'
import { schemaOptions } from '../schemas.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { noteCut } from './log-gaps.ts'
import { addToTotal, takeFromTotal, totalTurn } from './log-totals.ts'

/** The archive of the output of one instance, or of one load balancer (log-owners.ts). */
export interface LogArchiveDocument {
  /** The owner's id. */
  _id: string
  tenant_id: string
  /**
   * The key that encrypts the pieces. A key rotation reseals this key, not the pieces; deleting it makes them
   * unreadable.
   */
  key_sealed: string
  stored_bytes: number
  /** Former hosts, which may have output that is not archived yet. */
  former_hosts: { host_id: string; left_at: Date }[]
  /** The newest of the pieces that were dropped to keep the tenant within its limit. */
  cut?: { seq: number; created_at: Date }
}

const text = { type: String, required: true } as const
const number = { type: Number, required: true } as const

const archiveSchema = new Schema<LogArchiveDocument>(
  {
    _id: text,
    tenant_id: text,
    key_sealed: text,
    stored_bytes: { type: Number, default: 0 },
    former_hosts: [{ _id: false, host_id: text, left_at: { type: Date, required: true } }],
    cut: new Schema({ seq: number, created_at: { type: Date, required: true } }, { _id: false }),
  },
  { ...schemaOptions, collection: 'log_archives' },
)
tenantScoped(archiveSchema)
archiveSchema.index({ tenant_id: 1 })
archiveSchema.index({ stored_bytes: 1 })
archiveSchema.index({ 'former_hosts.host_id': 1 })
archiveSchema.index({ 'former_hosts.left_at': 1 })
archiveSchema.index({ 'cut.created_at': 1 }, { sparse: true })
export const LogArchive = mongoose.model<LogArchiveDocument>('LogArchive', archiveSchema)
sealedField(LogArchive, 'key_sealed')

/**
 * A part of an output file. Pieces sorted by `inOrder` are the output as the instance wrote it. Those of a load balancer
 * are so for each host: its replicas write at the same time.
 */
export interface LogPieceDocument {
  _id: string
  tenant_id: string
  instance_id: string
  host_id: string
  engine_id: string
  engine_created_at: string
  /** 1, 2, … within each `engine_id`. */
  seq: number
  file: string
  from: number
  to: number
  after_gap: boolean
  blob: BlobName
  stored_bytes: number
  created_at: Date
}

const pieceSchema = new Schema<LogPieceDocument>(
  {
    _id: text,
    tenant_id: text,
    instance_id: text,
    host_id: text,
    engine_id: text,
    engine_created_at: text,
    seq: number,
    file: text,
    from: number,
    to: number,
    after_gap: { type: Boolean, required: true },
    blob: { key: text, store: text },
    stored_bytes: number,
    created_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'log_pieces' },
)
tenantScoped(pieceSchema)
const inOrder = { engine_created_at: 1, engine_id: 1, seq: 1 } as const
pieceSchema.index({ tenant_id: 1, instance_id: 1, ...inOrder }, { unique: true })
pieceSchema.index({ instance_id: 1, engine_id: 1, file: 1, to: -1 })
pieceSchema.index({ created_at: 1 })
pieceSchema.index({ tenant_id: 1, created_at: 1 })
export const LogPiece = mongoose.model<LogPieceDocument>('LogPiece', pieceSchema)

/** The instance of a piece, and the host that sends it. */
export interface Written {
  tenant_id: string
  instance_id: string
  host_id: string
}

// What MongoDB keeps of a piece beside its content: output of zeros would otherwise be a great many records for nothing.
const recordBytes = 1024

/**
 * Archives a piece that continues its file, and returns up to where the file is archived. Ignores a piece that is
 * archived already or leaves a gap. A piece that is sent twice, even in parallel, is archived once. The tenant's oldest
 * pieces make room for it (`max_archive_gib`). Throws NotFound if the instance is being deleted, and StoreFull.
 */
export async function keepPiece(written: Written, sent: SentPiece, compressed: Buffer): Promise<number> {
  const to = await keptTo(written, sent)
  if (to !== sent.from) return to
  const most = await mostBytesOf(written.tenant_id)
  const archive = await openArchive(written)
  const { sealed } = seal(await ringOf(archive), compressed, contextOf(archive._id))
  const blob = await storeBlob(sealed)
  try {
    const turn = totalTurn(written.tenant_id)
    const bytes = sealed.length + recordBytes
    const kept = await transaction(() => commit(written, sent, { blob, bytes, most }), turn)
    if (!kept) await dropUnkept(blob)
  } catch (error) {
    await dropUnkept(blob)
    if (!isDuplicateKey(error)) throw error
  }
  return keptTo(written, sent)
}

/** False if another call was first. */
async function commit(
  written: Written,
  { bytes, from, after_gap, ...sent }: SentPiece,
  { blob, bytes: stored_bytes, most }: { blob: BlobName; bytes: number; most: number },
): Promise<boolean> {
  const { tenant_id, instance_id } = written
  if ((await keptTo(written, sent)) !== from) return false
  // This write also serializes the commits for one instance, and its deletion.
  const archive = await LogArchive.findOneAndUpdate(
    { _id: instance_id, tenant_id },
    { $inc: { stored_bytes } },
  )
  if (!archive) throw new NotFound('instance')
  const { engine_id, engine_created_at } = sent
  const last = await LogPiece.findOne({ tenant_id, instance_id, engine_created_at, engine_id }, { seq: 1 })
    .sort({ seq: -1 })
    .lean()
  await LogPiece.create({
    _id: blob.key,
    ...written,
    ...sent,
    // Never one that a reader of dropped pieces has passed.
    seq: (last?.seq ?? archive.cut?.seq ?? 0) + 1,
    from,
    to: from + bytes,
    after_gap: after_gap === 'true',
    blob,
    stored_bytes,
    created_at: new Date(),
  })
  await keepBlob(blob)
  const total = await addToTotal(tenant_id, stored_bytes)
  if (total > most) await cut(tenant_id, total - most, blob.key)
  return true
}

/** In bytes. */
async function mostBytesOf(tenantId: string): Promise<number> {
  const tenant = await Tenant.findById(tenantId, { limits: 1 }).lean()
  return limitOf(tenant ?? { limits: {} }, 'max_archive_gib') * 1024 ** 3
}

async function keptTo(
  { tenant_id, instance_id }: Written,
  { engine_id, file }: Pick<SentPiece, 'engine_id' | 'file'>,
): Promise<number> {
  const last = await LogPiece.findOne({ tenant_id, instance_id, engine_id, file }, { to: 1 })
    .sort({ to: -1 })
    .lean()
  return last?.to ?? 0
}

async function openArchive({
  tenant_id,
  instance_id,
}: Pick<Written, 'tenant_id' | 'instance_id'>): Promise<LogArchiveDocument> {
  const filter = { _id: instance_id, tenant_id }
  const found = await LogArchive.findOne(filter).lean()
  if (found) return found
  const key_sealed = await sealSecret(randomBytes(32).toString('base64'), instance_id)
  try {
    await LogArchive.updateOne(filter, { $setOnInsert: { key_sealed } }, { upsert: true })
  } catch (error) {
    if (!isDuplicateKey(error)) throw error // another call was first
  }
  return LogArchive.findOne(filter).lean().orFail()
}

/** The archived pieces of an instance in order, starting after the given piece. */
export async function* archivedPieces(
  scope: { tenant_id: string; instance_id: string; host_id?: string },
  after: Pick<LogPieceDocument, keyof typeof inOrder> | null,
): AsyncGenerator<LogPieceDocument> {
  const batch = 100
  for (let last = after; ; ) {
    const pieces: LogPieceDocument[] = await LogPiece.find({ ...scope, ...(last ? afterwards(last) : {}) })
      .sort({ ...inOrder })
      .limit(batch)
      .lean()
    yield* pieces
    last = pieces.at(-1) ?? null
    if (pieces.length < batch) return
  }
}

/** The last piece in order; with `host_id`, the last one from that host. */
export const lastPieceOf = (
  scope: Pick<LogPieceDocument, 'tenant_id' | 'instance_id'> & { host_id?: string },
): Promise<LogPieceDocument | null> =>
  LogPiece.findOne(scope).sort({ engine_created_at: -1, engine_id: -1, seq: -1 }).lean()

/** The last piece of a host that was archived before a time. */
export const lastPieceBefore = (
  scope: Pick<LogPieceDocument, 'tenant_id' | 'instance_id' | 'host_id'>,
  at: Date,
): Promise<LogPieceDocument | null> =>
  LogPiece.findOne({ ...scope, created_at: { $lt: at } })
    .sort({ engine_created_at: -1, engine_id: -1, seq: -1 })
    .lean()

const afterwards = ({ engine_created_at, engine_id, seq }: Pick<LogPieceDocument, keyof typeof inOrder>) => ({
  $or: [
    { engine_created_at: { $gt: engine_created_at } },
    { engine_created_at, engine_id: { $gt: engine_id } },
    { engine_created_at, engine_id, seq: { $gt: seq } },
  ],
})

/** Whether a piece was not dropped since it was read. */
export const isThere = async ({ _id, tenant_id }: LogPieceDocument): Promise<boolean> =>
  (await LogPiece.exists({ _id, tenant_id })) !== null

/** Decrypts a piece: lines, compressed with gzip. */
export async function readPiece({ blob }: LogPieceDocument, archive: LogArchiveDocument): Promise<Buffer> {
  return unseal(await ringOf(archive), archiveKey, await readBlob(blob), contextOf(archive._id))
}

/** Call in the transaction in which an instance leaves a host: the host may send its output later. */
export async function noteFormerHost(instanceId: string, tenantId: string, hostId: string): Promise<void> {
  await openArchive({ tenant_id: tenantId, instance_id: instanceId })
  await LogArchive.updateOne(
    { _id: instanceId, tenant_id: tenantId },
    { $push: { former_hosts: { host_id: hostId, left_at: new Date() } } },
  )
}

/** Forgets a former host for all instances that it no longer has: their output is archived or gone. */
export async function forgetFormerHost(hostId: string, present: string[]): Promise<void> {
  await LogArchive.updateMany(
    { 'former_hosts.host_id': hostId, _id: { $nin: present } },
    { $pull: { former_hosts: { host_id: hostId } } },
  ).setOptions(everyTenant)
}

/** Whether the host had the instance before, and may have output of it. */
export const isFormerHost = async (instanceId: string, hostId: string): Promise<boolean> =>
  (await LogArchive.exists({ _id: instanceId, 'former_hosts.host_id': hostId }).setOptions(everyTenant)) !==
  null

/** Removes an instance's archive. Idempotent: a repetition continues where the last call stopped. */
export async function removeArchive(instanceId: string): Promise<void> {
  await LogArchive.deleteOne({ _id: instanceId }).setOptions(everyTenant) // from now on no piece is added
  while (await dropPieces({ instance_id: instanceId })) {}
}

const piecesAtOnce = 500

/** Removes up to 500 of these pieces, oldest first. Returns how many. */
export async function dropPieces(filter: object, limit = piecesAtOnce): Promise<number> {
  return transaction(async () => {
    const pieces = await LogPiece.find(filter)
      .setOptions(everyTenant)
      .sort({ created_at: 1 })
      .limit(Math.min(limit, piecesAtOnce))
      .lean()
    await drop(pieces)
    return pieces.length
  })
}

async function drop(pieces: LogPieceDocument[]): Promise<void> {
  if (!pieces.length) return
  await dropBlobs(pieces.map(({ blob }) => blob))
  await LogPiece.deleteMany({ _id: { $in: pieces.map(({ _id }) => _id) } }).setOptions(everyTenant)
  for (const [id, of] of Map.groupBy(pieces, ({ instance_id }) => instance_id)) {
    await LogArchive.updateOne({ _id: id }, { $inc: { stored_bytes: -bytesOf(of) } }).setOptions(everyTenant)
  }
  for (const [tenant, of] of Map.groupBy(pieces, ({ tenant_id }) => tenant_id))
    await takeFromTotal(tenant, bytesOf(of))
}

const bytesOf = (pieces: Pick<LogPieceDocument, 'stored_bytes'>[]): number =>
  pieces.reduce((sum, { stored_bytes }) => sum + stored_bytes, 0)

const cutAtOnce = 20

/**
 * Drops a tenant's oldest pieces until at least `excess` bytes are gone or 500 pieces are; the next piece drops more.
 * `kept` stays. The archives remember that they are cut.
 */
async function cut(tenant_id: string, excess: number, kept: string): Promise<void> {
  let left = excess
  for (let count = 0; left > 0 && count < piecesAtOnce; count += cutAtOnce) {
    const oldest = await LogPiece.find({ tenant_id, _id: { $ne: kept } })
      .sort({ created_at: 1 })
      .limit(cutAtOnce)
      .lean()
    if (!oldest.length) return
    const goes: LogPieceDocument[] = []
    for (const piece of oldest) {
      if (left <= 0) break
      goes.push(piece)
      left -= piece.stored_bytes
    }
    await drop(goes)
    for (const [_id, of] of Map.groupBy(goes, ({ instance_id }) => instance_id)) {
      const seq = Math.max(...of.map((piece) => piece.seq))
      const created_at = of.at(-1)?.created_at
      await LogArchive.updateOne(
        { _id, tenant_id },
        { $max: { 'cut.seq': seq, 'cut.created_at': created_at } },
      )
      await noteCut({ _id, tenant_id })
    }
  }
}

// Each archive has one key, which is never replaced and is deleted with the archive.
const archiveKey = '1'

async function ringOf({ _id, key_sealed }: LogArchiveDocument): Promise<KeyRing> {
  const key = Buffer.from(await unsealSecret<string>(key_sealed, _id), 'base64')
  return { current: archiveKey, keys: new Map([[archiveKey, createSecretKey(key)]]) }
}

const contextOf = (instanceId: string): string => `log_pieces:${instanceId}`

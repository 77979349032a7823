import { createSecretKey, randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { type KeyRing, seal, unseal } from '../../lib/seal.ts'
import type { LogPiece as SentPiece } from '../../lib/host-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { type BlobName, dropBlobs, dropUnkept, keepBlob, readBlob, storeBlob } from '../blobs.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { schemaOptions } from '../schemas.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'

/** What the platform keeps of one instance's output. */
export interface LogArchiveDocument {
  /** The instance's id. */
  _id: string
  tenant_id: string
  /** The pieces' own key: a rotation of keys seals it anew and leaves them alone, and without it they are noise. */
  key_sealed: string
  stored_bytes: number
  /** Where it was before, and may have left output that is not here yet. */
  former_hosts: { host_id: string; left_at: Date }[]
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
  },
  { ...schemaOptions, collection: 'log_archives' },
)
tenantScoped(archiveSchema)
archiveSchema.index({ tenant_id: 1 })
archiveSchema.index({ stored_bytes: 1 })
archiveSchema.index({ 'former_hosts.host_id': 1 })
archiveSchema.index({ 'former_hosts.left_at': 1 })
export const LogArchive = mongoose.model<LogArchiveDocument>('LogArchive', archiveSchema)
sealedField(LogArchive, 'key_sealed')

/** A part of a file of its output. In the order of `inOrder` they are what the container wrote. */
export interface LogPieceDocument {
  _id: string
  tenant_id: string
  instance_id: string
  host_id: string
  engine_id: string
  engine_created_at: string
  /** 1, 2, … for each engine's container. */
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
export const LogPiece = mongoose.model<LogPieceDocument>('LogPiece', pieceSchema)

/** Which instance a piece is of, and who has it. */
export interface Written {
  tenant_id: string
  instance_id: string
  host_id: string
}

/**
 * Keeps a piece, unless it is kept already or another comes first. Returns up to where its file is kept now. A piece that is
 * sent twice, also at the same time, is kept once. Throws NotFound where the instance is being deleted.
 */
export async function keepPiece(written: Written, sent: SentPiece, compressed: Buffer): Promise<number> {
  const to = await keptTo(written, sent)
  if (to !== sent.from) return to
  const archive = await openArchive(written)
  const { sealed } = seal(await ringOf(archive), compressed, contextOf(archive._id))
  const blob = await storeBlob(sealed)
  try {
    const kept = await transaction(() => commit(written, sent, blob, sealed.length))
    if (!kept) await dropUnkept(blob)
  } catch (error) {
    await dropUnkept(blob)
    if (!isDuplicateKey(error)) throw error
  }
  return keptTo(written, sent)
}

/** False where another call was first. */
async function commit(
  written: Written,
  { bytes, from, after_gap, ...sent }: SentPiece,
  blob: BlobName,
  stored_bytes: number,
): Promise<boolean> {
  const { tenant_id, instance_id } = written
  if ((await keptTo(written, sent)) !== from) return false
  // Also what makes two commits for one instance wait for each other, and for its deletion.
  const { matchedCount } = await LogArchive.updateOne(
    { _id: instance_id, tenant_id },
    { $inc: { stored_bytes } },
  )
  if (!matchedCount) throw new NotFound('instance')
  const { engine_id, engine_created_at } = sent
  const last = await LogPiece.findOne({ tenant_id, instance_id, engine_created_at, engine_id }, { seq: 1 })
    .sort({ seq: -1 })
    .lean()
  await LogPiece.create({
    _id: blob.key,
    ...written,
    ...sent,
    seq: (last?.seq ?? 0) + 1,
    from,
    to: from + bytes,
    after_gap: after_gap === 'true',
    blob,
    stored_bytes,
    created_at: new Date(),
  })
  await keepBlob(blob)
  return true
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

/** What an instance wrote, as the engine had it in its files; in order, from after a piece on. */
export async function* archivedPieces(
  scope: { tenant_id: string; instance_id: string },
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

/** The last in order; of those that came from one host, where that is said. */
export const lastPieceOf = (
  scope: Pick<LogPieceDocument, 'tenant_id' | 'instance_id'> & { host_id?: string },
): Promise<LogPieceDocument | null> =>
  LogPiece.findOne(scope).sort({ engine_created_at: -1, engine_id: -1, seq: -1 }).lean()

const afterwards = ({ engine_created_at, engine_id, seq }: Pick<LogPieceDocument, keyof typeof inOrder>) => ({
  $or: [
    { engine_created_at: { $gt: engine_created_at } },
    { engine_created_at, engine_id: { $gt: engine_id } },
    { engine_created_at, engine_id, seq: { $gt: seq } },
  ],
})

/** Opens what a piece holds: lines, compressed with gzip. */
export async function readPiece({ blob }: LogPieceDocument, archive: LogArchiveDocument): Promise<Buffer> {
  return unseal(await ringOf(archive), archiveKey, await readBlob(blob), contextOf(archive._id))
}

/** In the transaction in which an instance leaves a host: what it wrote there may come later, and counts. */
export async function noteFormerHost(instanceId: string, tenantId: string, hostId: string): Promise<void> {
  await openArchive({ tenant_id: tenantId, instance_id: instanceId })
  await LogArchive.updateOne(
    { _id: instanceId, tenant_id: tenantId },
    { $push: { former_hosts: { host_id: hostId, left_at: new Date() } } },
  )
}

/** A host has these instances, and no others: what it had left of others' output is archived, or is no more. */
export async function forgetFormerHost(hostId: string, present: string[]): Promise<void> {
  await LogArchive.updateMany(
    { 'former_hosts.host_id': hostId, _id: { $nin: present } },
    { $pull: { former_hosts: { host_id: hostId } } },
  ).setOptions(everyTenant)
}

/** Whether it was there before, and may have left output. */
export const isFormerHost = async (instanceId: string, hostId: string): Promise<boolean> =>
  (await LogArchive.exists({ _id: instanceId, 'former_hosts.host_id': hostId }).setOptions(everyTenant)) !==
  null

/** Removes an instance's archive. May be repeated, and goes on where it was left. */
export async function removeArchive(instanceId: string): Promise<void> {
  await LogArchive.deleteOne({ _id: instanceId }).setOptions(everyTenant) // from now on nothing is added
  while (await dropPieces({ instance_id: instanceId })) {}
}

const piecesAtOnce = 500

/** Removes some of these pieces, the oldest first. Returns how many. */
export async function dropPieces(filter: object, limit = piecesAtOnce): Promise<number> {
  return transaction(async () => {
    const pieces = await LogPiece.find(filter)
      .setOptions(everyTenant)
      .sort({ created_at: 1 })
      .limit(Math.min(limit, piecesAtOnce))
      .lean()
    if (!pieces.length) return 0
    await dropBlobs(pieces.map(({ blob }) => blob))
    await LogPiece.deleteMany({ _id: { $in: pieces.map(({ _id }) => _id) } }).setOptions(everyTenant)
    for (const [id, of] of Map.groupBy(pieces, ({ instance_id }) => instance_id)) {
      const stored_bytes = -of.reduce((sum, piece) => sum + piece.stored_bytes, 0)
      await LogArchive.updateOne({ _id: id }, { $inc: { stored_bytes } }).setOptions(everyTenant)
    }
    return pieces.length
  })
}

// One key for each archive, which is never replaced: it goes with its archive.
const archiveKey = '1'

async function ringOf({ _id, key_sealed }: LogArchiveDocument): Promise<KeyRing> {
  const key = Buffer.from(await unsealSecret<string>(key_sealed, _id), 'base64')
  return { current: archiveKey, keys: new Map([[archiveKey, createSecretKey(key)]]) }
}

const contextOf = (instanceId: string): string => `log_pieces:${instanceId}`

import mongoose, { Schema } from 'mongoose'
import type { RunToken } from '../../lib/runner-protocol.ts'
import { isDuplicateKey } from '../database.ts'
import { schemaOptions } from '../schemas.ts'
import { hasStoreRoom } from '../store-room.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { needOpenRun, type RunnerOf } from './run-nodes.ts'
import { AiRun, type AiRunDocument } from './runs.ts'

// What the models of a run say while they say it, for those who watch. The outputs of nodes are elsewhere: of this, parts may
// be lost.

/** A batch, as a runner has sent it. */
interface AiRunTokensDocument {
  /** `<run>/<seq>` */
  _id: string
  tenant_id: string
  run_id: string
  /** Counts the batches of the run from 1. */
  seq: number
  tokens: RunToken[]
  /** Of its tokens as JSON. */
  bytes: number
  /** Of all batches before it. */
  bytes_before: number
  expires_at: Date
}

const schema = new Schema<AiRunTokensDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    run_id: { type: String, required: true },
    seq: { type: Number, required: true },
    tokens: { type: Schema.Types.Mixed, required: true },
    bytes_before: { type: Number, required: true },
    bytes: { type: Number, required: true },
    expires_at: { type: Date, required: true },
  },
  // Nobody waits for a token to be in the journal.
  { ...schemaOptions, collection: 'ai_run_tokens', writeConcern: { w: 1, j: false } },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, run_id: 1, seq: 1 })
schema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
export const AiRunTokens = mongoose.model<AiRunTokensDocument>('AiRunTokens', schema)

/** What is kept of a run. */
export const tokenBounds = { batches: 2_000, bytes: 1024 ** 2, forMs: 3_600_000 } as const

const attempts = 5

/**
 * Keeps a batch of tokens of an open run, and forgets the oldest ones beyond the bounds. While MongoDB's disk is full, they are
 * lost. Throws NotFound, `attempt_over`.
 */
export async function keepTokens(runner: RunnerOf, run_id: string, tokens: RunToken[]): Promise<void> {
  const { tenant_id, id: deployment_id } = runner
  const open = { _id: run_id, tenant_id, deployment_id, open: true as const }
  const run = await AiRun.findOne(open, { tenant_id: 1, redacts: 1 }).lean()
  if (!run) return void (await needOpenRun(runner, run_id))
  return addTokens(run, tokens)
}

type Last = Pick<AiRunTokensDocument, 'seq' | 'bytes_before' | 'bytes'>

/** The last batch of a run; null: it has none. */
export const lastTokens = (tenant_id: string, run_id: string): Promise<Last | null> =>
  AiRunTokens.findOne({ tenant_id, run_id }, { seq: 1, bytes_before: 1, bytes: 1 }).sort({ seq: -1 }).lean()

/**
 * Keeps a batch of tokens of a run that is known to be open, but for one that redacts everything. `last`: the run's last batch
 * a moment ago, if its caller knows it.
 */
export async function addTokens(
  { _id: run_id, tenant_id, redacts }: Pick<AiRunDocument, '_id' | 'tenant_id' | 'redacts'>,
  tokens: RunToken[],
  last?: Last | null,
): Promise<void> {
  if (redacts === 'all') return
  if (!(await hasStoreRoom())) return
  const bytes = Buffer.byteLength(JSON.stringify(tokens))
  for (let attempt = 1; ; attempt++) {
    const before = last !== undefined && attempt === 1 ? last : await lastTokens(tenant_id, run_id)
    const seq = (before?.seq ?? 0) + 1
    const bytes_before = (before?.bytes_before ?? 0) + (before?.bytes ?? 0)
    const expires_at = new Date(Date.now() + tokenBounds.forMs)
    const batch = { _id: `${run_id}/${seq}`, tenant_id, run_id, seq, tokens, bytes_before, bytes, expires_at }
    try {
      await new AiRunTokens(batch).save()
      await forgetBeyond({ tenant_id, run_id, seq, all: bytes_before + bytes })
      return
    } catch (error) {
      // Another batch of the run has come meanwhile.
      if (!isDuplicateKey(error) || attempt === attempts) throw error
    }
  }
}

type Latest = Pick<AiRunTokensDocument, 'tenant_id' | 'run_id' | 'seq'> & { all: number }

async function forgetBeyond({ tenant_id, run_id, seq, all }: Latest): Promise<void> {
  const { batches, bytes } = tokenBounds
  if (seq <= batches && all <= bytes) return
  const old = [{ seq: { $lte: seq - batches } }, { bytes_before: { $lt: all - bytes } }]
  await AiRunTokens.deleteMany({ tenant_id, run_id, $or: old })
}

/** One token that is kept, and where it is among those of its run. */
export interface KeptToken extends RunToken {
  seq: number
  /** Within the batch. */
  index: number
}

/** Where a reader is: behind this token. */
export interface TokenPlace {
  seq: number
  index: number
}

/** The tokens of a run behind a place, the oldest first. */
export async function tokensAfter(
  { _id: run_id, tenant_id }: { _id: string; tenant_id: string },
  place: TokenPlace,
): Promise<KeptToken[]> {
  const batches = await AiRunTokens.find({ tenant_id, run_id, seq: { $gte: place.seq } })
    .sort({ seq: 1 })
    .lean()
  return batches
    .flatMap(({ seq, tokens }) => tokens.map((token, index) => ({ ...token, seq, index })))
    .filter(({ seq, index }) => seq > place.seq || index > place.index)
}

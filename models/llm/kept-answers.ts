import { createHash } from 'node:crypto'
import { promisify } from 'node:util'
import { deflateRaw, inflateRaw } from 'node:zlib'
import mongoose, { Schema } from 'mongoose'
import { schemaOptions } from '../schemas.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { hasStoreRoom } from '../store-room.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { durable, inMemory, insert, type Statement, update } from '../commands.ts'

/**
 * The answer to one call of a workflow's run, so that a step of the run that is repeated does not pay for it again. `open`: a
 * call is making the answer, and holds it by a lease. `done`: the answer is here.
 */
export interface KeptAnswerDocument {
  /** A hash of who asked, and what. */
  _id: string
  tenant_id: string
  run_id: string
  state: 'open' | 'done'
  /** The call that makes the answer, or has made it. Only that call writes here, until the lease or the answer is over. */
  call_id: string
  /** What the provider gets as `Idempotency-Key`, also from a call that takes over from another. */
  provider_key: string
  lease_until: Date
  /** Null until it is done. */
  answer_sealed: string | null
  /** When MongoDB deletes it. */
  expires_at: Date
  created_at: Date
}

const schema = new Schema<KeptAnswerDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    run_id: { type: String, required: true },
    state: { type: String, enum: ['open', 'done'], required: true },
    call_id: { type: String, required: true },
    provider_key: { type: String, required: true },
    lease_until: { type: Date, required: true },
    answer_sealed: { type: String, default: null },
    expires_at: { type: Date, required: true },
    created_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'llm_kept_answers' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, run_id: 1 })
schema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
export const KeptAnswer = mongoose.model<KeptAnswerDocument>('LlmKeptAnswer', schema)
sealedField(KeptAnswer, 'answer_sealed')
const collection = KeptAnswer.collection.name

const keptMs = 24 * 3_600_000
/** How long a repeated call waits for a gateway that was killed. MongoDB may be away for so long, less one renewal. */
const leaseMs = 30_000
const renewEveryMs = 5_000
/** Of one answer. */
export const mostPlainBytes = 8 * 1024 ** 2
/** Of one answer, compressed. A stream of 20,000 tokens has some 200 KiB. A rotation of keys reads 100 such records at once. */
const mostBytes = 256 * 1024

/** A call that can be repeated: the same one has the same fields. */
export interface RepeatableCall {
  tenant_id: string
  run_id: string
  connector_id: string | null
  /** Names the call within its run. */
  key: string
  method: string
  /** With its query. */
  path: string
  body: Uint8Array
}

/** An answer as it goes to a caller. */
export interface Answer {
  status: number
  headers: Record<string, string | string[]>
  body: Buffer
}

/** The right to make an answer, which one call has at a time. */
export interface Claim {
  call_id: string
  /** Goes to the provider, which may have begun the same answer for a call whose gateway was killed. */
  provider_key: string
  /**
   * Keeps the answer, unless it is too large, MongoDB's disk is full, or another call has taken over because the lease had
   * ended. After an error it can be called again.
   */
  keep(answer: Answer): Promise<void>
  /** Lets another call make the answer at once, unless this one has kept it. */
  giveUp(): Promise<void>
}

/**
 * The answer to a call if it is kept, or the right to make it under the id `call_id`. Null: another call is making it, so ask
 * again.
 */
export async function claimAnswer(
  call: RepeatableCall,
  call_id: string,
): Promise<{ kept: Answer } | { claim: Claim } | null> {
  const { tenant_id, run_id } = call
  const at = { _id: idOf(call), tenant_id }
  const find = () => KeptAnswer.findOne(at).lean()
  const fields = { ...at, run_id, ...begin(call_id, call_id) }
  // In the journal: after a crash of MongoDB, another call must find it.
  const { isDuplicate } = await insert(collection, fields, durable)
  if (!isDuplicate) return { claim: hold(at, fields) }
  const found = await find()
  if (!found) return null // the other call has just given up
  // A command that was repeated, because MongoDB went away, has found what it had written.
  if (found.call_id === call_id) return { claim: hold(at, found) }
  if (!isOver(found))
    return found.answer_sealed === null ? null : { kept: await opened(found._id, found.answer_sealed) }
  const { call_id: former, provider_key, lease_until, expires_at } = found
  const q = { ...at, call_id: former, lease_until, expires_at }
  const ours = begin(call_id, found.state === 'open' ? provider_key : call_id)
  await update(collection, [{ q, u: { $set: ours } }], durable)
  return (await find())?.call_id === call_id ? { claim: hold(at, ours) } : null
}

const idOf = ({ tenant_id, run_id, connector_id, key, method, path, body }: RepeatableCall): string =>
  createHash('sha256')
    .update(JSON.stringify([tenant_id, run_id, connector_id, key, method, path]))
    .update(body)
    .digest('hex')

function begin(
  call_id: string,
  provider_key: string,
): Omit<KeptAnswerDocument, '_id' | 'tenant_id' | 'run_id'> {
  const created_at = new Date()
  return {
    state: 'open',
    call_id,
    provider_key,
    lease_until: new Date(created_at.getTime() + leaseMs),
    answer_sealed: null,
    expires_at: new Date(created_at.getTime() + keptMs),
    created_at,
  }
}

/** MongoDB deletes what has expired within a minute or so. */
const isOver = ({ state, lease_until, expires_at }: KeptAnswerDocument, now = new Date()): boolean =>
  expires_at <= now || (state === 'open' && lease_until <= now)

type At = Pick<KeptAnswerDocument, '_id' | 'tenant_id'>

function hold(at: At, { call_id, provider_key }: Pick<Claim, 'call_id' | 'provider_key'>): Claim {
  const ours = { ...at, call_id, state: 'open' as const }
  startRenewing(ours)
  let isKept = false
  return {
    call_id,
    provider_key,
    async keep(answer) {
      const answer_sealed = (await hasStoreRoom()) ? await sealed(at._id, answer) : null
      if (answer_sealed === null) return
      const done = { state: 'done', answer_sealed, expires_at: new Date(Date.now() + keptMs) }
      await update(collection, [{ q: ours, u: { $set: done } }], durable)
      isKept = true
    },
    async giveUp() {
      stopRenewing(ours)
      if (!isKept) await KeptAnswer.deleteOne(ours)
    },
  }
}

// The leases of all claims of this process, renewed together.

const held = new Set<object>()
let renewing: NodeJS.Timeout | undefined

function startRenewing(ours: object): void {
  held.add(ours)
  renewing ??= setInterval(renew, renewEveryMs).unref()
}

function stopRenewing(ours: object): void {
  held.delete(ours)
  if (held.size) return
  clearInterval(renewing)
  renewing = undefined
}

function renew(): void {
  const u = { $set: { lease_until: new Date(Date.now() + leaseMs) } }
  const all = [...held].map((q): Statement => ({ q, u }))
  // The next one is soon. A lease that has ended all the same costs another call, and no answer.
  update(collection, all, inMemory).catch(() => {})
}

interface Packed extends Pick<Answer, 'status' | 'headers'> {
  /** Compressed, in base64. */
  body: string
}

const deflate = promisify(deflateRaw)
const inflate = promisify(inflateRaw)

/** Null if it is too large. */
async function sealed(id: string, { status, headers, body }: Answer): Promise<string | null> {
  if (body.length > mostPlainBytes) return null
  const small = await deflate(body)
  if (small.length > mostBytes) return null
  const packed: Packed = { status, headers, body: small.toString('base64') }
  return sealSecret(packed, id)
}

async function opened(id: string, stored: string): Promise<Answer> {
  const { status, headers, body } = await unsealSecret<Packed>(stored, id)
  const plain = await inflate(Buffer.from(body, 'base64'), { maxOutputLength: mostPlainBytes })
  return { status, headers, body: plain }
}

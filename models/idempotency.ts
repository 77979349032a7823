import { createHash } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { IdempotencyMismatch } from '../lib/problem.ts'
import { transaction } from './database.ts'
import { schemaOptions } from './schemas.ts'
import { sealedField } from './sealed-fields.ts'
import { hashToken, sealSecret, unsealSecret } from './secrets.ts'

/** The first answer to a request with an Idempotency-Key. Sealed, since it may contain a secret that is shown once. */
interface IdempotencyDocument {
  _id: string
  tenant_id: string
  fingerprint: string
  answer_sealed: string
  expires_at: Date
}

const schema = new Schema<IdempotencyDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    fingerprint: { type: String, required: true },
    answer_sealed: { type: String, required: true },
    expires_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'idempotency_keys' },
)
schema.index({ tenant_id: 1 })
schema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
const IdempotencyKey = mongoose.model<IdempotencyDocument>('IdempotencyKey', schema)
sealedField(IdempotencyKey, 'answer_sealed')

const keptMs = 24 * 3_600_000

/**
 * Runs `work` once per key. Its effects and its answer are committed together, and a repeated request with the key gets
 * the same answer. If `work` throws, nothing is stored, and the key can be used again. Throws IdempotencyMismatch if
 * the key was used for another request.
 */
export async function once<T>(
  owner: { id: string; tenant_id: string },
  key: string,
  request: unknown,
  work: () => Promise<T>,
): Promise<T> {
  const _id = digest([owner.id, key])
  // Keyed: a stolen database does not allow testing of guesses at what a request contained, such as a password.
  const fingerprint = hashToken(JSON.stringify(request))
  return transaction(async () => {
    const known = await IdempotencyKey.findById(_id).lean()
    if (known && known.expires_at.getTime() > Date.now()) {
      if (known.fingerprint !== fingerprint) throw new IdempotencyMismatch()
      return await unsealSecret<T>(known.answer_sealed, _id)
    }
    // Written before the work: all but one of concurrent requests conflict here, at no cost.
    const kept = {
      tenant_id: owner.tenant_id,
      fingerprint,
      answer_sealed: '-',
      expires_at: new Date(Date.now() + keptMs),
    }
    await IdempotencyKey.findOneAndUpdate({ _id }, { $set: kept }, { upsert: true })
    const answer = await work()
    // A handler without an answer (204) returns null on a repetition, which is also sent without a body.
    const answer_sealed = await sealSecret(answer ?? null, _id)
    await IdempotencyKey.updateOne({ _id }, { $set: { answer_sealed } })
    return answer
  }, owner.tenant_id)
}

const digest = (value: unknown): string =>
  createHash('sha256').update(JSON.stringify(value)).digest('base64url')

import { createSecretKey, randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { type Redaction, redacted } from '../../lib/ai/redaction.ts'
import { type KeyRing, seal, unseal } from '../../lib/seal.ts'
import { storeBlob, readBlob } from '../blobs.ts'
import { schemaOptions } from '../schemas.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { inlineBytes, readValue, type StoredValue, storeValue } from './run-values.ts'

// Values of which readers of a run do not see all: what is shown is stored beside the value itself, which is sealed by a key of
// the run. The key goes with the run, and is sealed anew when the platform's keys are rotated.

interface AiRunKeyDocument {
  /** The run. */
  _id: string
  tenant_id: string
  key_sealed: string
}

const schema = new Schema<AiRunKeyDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    key_sealed: { type: String, required: true },
  },
  { ...schemaOptions, collection: 'ai_run_keys' },
)
tenantScoped(schema)
const contextOf = (run_id: string): string => `values of the run ${run_id}`
const AiRunKey = mongoose.model<AiRunKeyDocument>('AiRunKey', schema)
sealedField(AiRunKey, 'key_sealed', ({ _id }) => contextOf(_id))

/** A run with a key. */
export interface Keyed {
  _id: string
  tenant_id: string
}

/** Base64. */
export const newRunKey = (): string => randomBytes(32).toString('base64')

/** Call in the transaction that inserts the run. */
export async function insertRunKey({ _id, tenant_id }: Keyed, key: string): Promise<void> {
  const key_sealed = await sealSecret(key, contextOf(_id))
  await new AiRunKey({ _id, tenant_id, key_sealed }).save()
}

/** Call in the transaction that removes the run: nothing opens its values any more. */
export async function removeRunKey({ _id, tenant_id }: Keyed): Promise<void> {
  await AiRunKey.deleteOne({ _id, tenant_id })
}

/** The key of the first of these runs that has one; null: none has. */
export async function runKeyOf(tenant_id: string, run_ids: readonly string[]): Promise<string | null> {
  const found = await AiRunKey.find({ _id: { $in: [...run_ids] }, tenant_id }).lean()
  const [first] = found.toSorted((one, other) => run_ids.indexOf(one._id) - run_ids.indexOf(other._id))
  return first ? unsealSecret<string>(first.key_sealed, contextOf(first._id)) : null
}

async function needKey({ _id, tenant_id }: Keyed): Promise<string> {
  const key = await runKeyOf(tenant_id, [_id])
  if (key === null) throw new Error(`the run ${_id} has no key for its values`)
  return key
}

const ringOf = (key: string): KeyRing => ({
  current: 'run',
  keys: new Map([['run', createSecretKey(Buffer.from(key, 'base64'))]]),
})

// A retry has the key of the run that it retries, and shares its values.
const context = 'value of a run'

/** A value in two. */
export interface TwoValues {
  /** What readers see. Its `bytes` are those of the whole. */
  shown: StoredValue
  /** All of it, sealed; null: all of it is shown. */
  whole: StoredValue | null
}

/** Stores a value, not kept yet (see storeValue). */
export async function storeInTwo(run: Keyed, json: string, redaction: Redaction): Promise<TwoValues> {
  if (redaction === null) return { shown: await storeValue(json), whole: null }
  return storeWithKey(await needKey(run), json, redaction)
}

/** The same for a run that is not there yet. */
export async function storeWithKey(key: string, json: string, redaction: Redaction): Promise<TwoValues> {
  const shown = await storeValue(JSON.stringify(redacted(JSON.parse(json), redaction)))
  return { shown: { ...shown, bytes: Buffer.byteLength(json) }, whole: await sealed(key, json) }
}

/** Stores a value of a run with a key so that only the run reads it, not kept yet. */
export const storeSealed = async (run: Keyed, json: string): Promise<StoredValue> =>
  sealed(await needKey(run), json)

async function sealed(key: string, json: string): Promise<StoredValue> {
  const { sealed: text } = seal(ringOf(key), Buffer.from(json), context)
  const its = { bytes: Buffer.byteLength(json), is_sealed: true as const }
  return text.length <= inlineBytes
    ? { ...its, json: text.toString('base64'), blob: null }
    : { ...its, json: null, blob: await storeBlob(text) }
}

/** The JSON of a value of a run, sealed or not. */
export async function openValue(run: Keyed, value: StoredValue): Promise<string> {
  if (!value.is_sealed) return readValue(value)
  const { json, blob } = value
  const text = json !== null ? Buffer.from(json, 'base64') : blob ? await readBlob(blob) : Buffer.alloc(0)
  return unseal(ringOf(await needKey(run)), 'run', text, context).toString()
}

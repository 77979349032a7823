import mongoose, { Schema } from 'mongoose'
import { idField } from '../resources.ts'
import { schemaOptions } from '../schemas.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { keptDays, type LedgerCall } from './ledgers.ts'
import { noUsage, type PriceOf, type Usage } from './prices.ts'
import { type Purpose, purposeKinds } from './purposes.ts'

export const callStatuses = ['open', 'succeeded', 'failed', 'interrupted', 'refused', 'lost'] as const
export const callsCountedBy = ['provider', 'estimate', 'reservation'] as const

/**
 * One call of a model: who, what for, how much, and how it ended. Neither the prompt nor the answer. The record is
 * written with the reservations, and closed before they are settled: whatever is killed between, it says what the
 * ledgers still need.
 */
export interface CallDocument extends Usage {
  _id: string
  tenant_id: string
  purpose_kind: Purpose['kind']
  purpose_id: string
  /** Of a run: the node that calls, as its runner says. Null: the call has no name, or is no run's. */
  node: string | null
  /** The ledger of the tenant's month that has its reservation. */
  month: string
  /** The one that answered; until then, the one that was asked. Null: a model of the platform's own. */
  connector_id: string | null
  provider: string
  /** Empty until the call ends. */
  base_url: string
  endpoint: string
  model: string
  /** `interrupted`: the caller left. `refused`: by the gateway. `lost`: its gateway was killed. */
  status: (typeof callStatuses)[number]
  /** What the caller got; null if it got nothing. */
  http_status: number | null
  /** Why it did not succeed. */
  code: string | null
  /** Where the tokens are from; null if nothing was counted. */
  counted_by: (typeof callsCountedBy)[number] | null
  /** Of the reservation. */
  estimated_input_tokens: number
  reserved_tokens: number
  cost_nano_usd: number | null
  prices_version: string | null
  /** Requests to providers. */
  attempts: number
  first_byte_ms: number | null
  duration_ms: number | null
  /** Until then its gateway settles it; afterwards any gateway does. */
  lease_until: Date
  settled: boolean
  created_at: Date
}

const text = { type: String, default: '' }
const count = { type: Number, default: 0 }
const numberOrNull = { type: Number, default: null }

const schema = new Schema<CallDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    purpose_kind: { type: String, enum: purposeKinds, required: true },
    purpose_id: { type: String, required: true },
    node: { type: String, default: null },
    month: { type: String, required: true },
    connector_id: { type: String, default: null },
    provider: text,
    base_url: text,
    endpoint: { type: String, required: true },
    model: text,
    status: { type: String, enum: callStatuses, default: 'open' },
    http_status: numberOrNull,
    code: { type: String, default: null },
    counted_by: { type: String, enum: [...callsCountedBy, null], default: null },
    input_tokens: count,
    output_tokens: count,
    cache_read_tokens: count,
    cache_write_tokens: count,
    estimated_input_tokens: count,
    reserved_tokens: count,
    cost_nano_usd: numberOrNull,
    prices_version: { type: String, default: null },
    attempts: count,
    first_byte_ms: numberOrNull,
    duration_ms: numberOrNull,
    lease_until: { type: Date, required: true },
    settled: { type: Boolean, default: false },
    created_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'llm_calls' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, created_at: -1 })
// The calls of a run (node-usage.ts).
schema.index({ tenant_id: 1, purpose_id: 1 }, { partialFilterExpression: { node: { $type: 'string' } } })
schema.index({ created_at: 1 }, { expireAfterSeconds: keptDays * 86_400 })
schema.index({ lease_until: 1 }, { partialFilterExpression: { settled: false } })
export const LlmCall = mongoose.model<CallDocument>('LlmCall', schema)

/** A call as it begins. */
export type NewCall = Pick<
  CallDocument,
  | '_id'
  | 'tenant_id'
  | 'purpose_kind'
  | 'purpose_id'
  | 'node'
  | 'month'
  | 'connector_id'
  | 'provider'
  | 'base_url'
  | 'endpoint'
  | 'model'
  | 'estimated_input_tokens'
  | 'reserved_tokens'
  | 'lease_until'
  | 'created_at'
>

/** How a call ended. */
export type CallEnd = Pick<
  CallDocument,
  | keyof Usage
  | 'connector_id'
  | 'provider'
  | 'base_url'
  | 'model'
  | 'status'
  | 'http_status'
  | 'code'
  | 'counted_by'
  | 'cost_nano_usd'
  | 'prices_version'
  | 'attempts'
  | 'first_byte_ms'
  | 'duration_ms'
>

/** Any call's record, as its ledgers know it. */
export const inLedgers = (call: NewCall): LedgerCall => ({
  _id: call._id,
  tenant_id: call.tenant_id,
  purpose: { kind: call.purpose_kind, id: call.purpose_id },
  month: call.month,
  reserved_tokens: call.reserved_tokens,
})

/** What the end of a call adds to its record, before the end. */
export const noEnd = {
  ...noUsage,
  http_status: null,
  code: null,
  counted_by: null,
  cost_nano_usd: null,
  prices_version: null,
  attempts: 0,
  first_byte_ms: null,
  duration_ms: null,
} as const

/** The record of a call that has begun. By hand: mongoose would take longer for it than MongoDB. */
export const openRecord = (call: NewCall): CallDocument => ({
  ...call,
  ...noEnd,
  status: 'open',
  settled: false,
})

/** The fields for the cost of a call. */
export function costOf(
  priceOf: PriceOf,
  call: Pick<CallDocument, 'provider' | 'base_url' | 'model'>,
  usage: Usage,
): Pick<CallDocument, 'cost_nano_usd' | 'prices_version'> {
  const cost = priceOf({ ...call, usage })
  return { cost_nano_usd: cost?.nano_usd ?? null, prices_version: cost?.version ?? null }
}

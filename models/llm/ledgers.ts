import mongoose, { Schema } from 'mongoose'
import { StateConflict } from '../../lib/problem.ts'
import { isDuplicateKey } from '../database.ts'
import { schemaOptions } from '../schemas.ts'
import { tenantScoped } from '../tenant-scope.ts'
import type { Purpose } from './purposes.ts'

/**
 * The tokens that calls of one purpose, or of one tenant in one month, have taken. A call reserves the most that it may
 * take before it is sent, and is settled at what it took. Both are one conditional update of one document, so a
 * reservation is made and settled once, whatever is killed between them.
 */
export interface LedgerDocument {
  /** `<tenant>:<kind>:<id>`, or `<tenant>:month:<2026-11>` */
  _id: string
  tenant_id: string
  /** Taken and reserved. */
  tokens: number
  /** Null: no budget. Of a month, the tenant's limit at that moment counts. */
  budget_tokens: number | null
  /** Of the calls with a known price. */
  cost_nano_usd: number
  /** The reservations by the ids of their calls. */
  open: Record<string, number>
  /** From then on it takes no call. */
  closed_at: Date | null
  /** When MongoDB deletes it. */
  expires_at: Date | null
  created_at: Date
}

const schema = new Schema<LedgerDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    tokens: { type: Number, required: true },
    budget_tokens: { type: Number, default: null },
    cost_nano_usd: { type: Number, required: true },
    open: { type: Schema.Types.Mixed, required: true },
    closed_at: { type: Date, default: null },
    expires_at: { type: Date, default: null },
    created_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'llm_ledgers' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1 })
schema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
export const Ledger = mongoose.model<LedgerDocument>('LlmLedger', schema)

/** As long as the calls' own records. */
export const keptDays = 90
const dayMs = 86_400_000

const purposeLedger = (tenant_id: string, { kind, id }: Purpose): string => `${tenant_id}:${kind}:${id}`
const monthLedger = (tenant_id: string, month: string): string => `${tenant_id}:month:${month}`
/** The calendar month in UTC: `2026-11`. */
export const monthOf = (time: Date): string => time.toISOString().slice(0, 7)

const fresh = () => ({ tokens: 0, cost_nano_usd: 0, open: {}, closed_at: null, created_at: new Date() })

/**
 * Makes the ledger of a purpose, or changes its budget. What it has taken stays. Throws StateConflict if it is closed.
 */
export async function openLedger(
  tenant_id: string,
  purpose: Purpose,
  budget_tokens: number | null,
): Promise<void> {
  const ledger = await Ledger.findOneAndUpdate(
    { _id: purposeLedger(tenant_id, purpose), tenant_id },
    { $set: { budget_tokens }, $setOnInsert: { ...fresh(), expires_at: null } },
    { upsert: true, returnDocument: 'after' },
  ).lean()
  if (ledger?.closed_at) throw new StateConflict('call a model', 'closed')
}

/** Ends all tokens of a purpose: its next call is refused. Calls that are under way go on, and are settled. */
export async function closeLedger(tenant_id: string, purpose: Purpose): Promise<void> {
  const now = new Date()
  await Ledger.updateOne(
    { _id: purposeLedger(tenant_id, purpose), tenant_id, closed_at: null },
    { $set: { closed_at: now, expires_at: new Date(now.getTime() + keptDays * dayMs) } },
  )
}

/** The ledger of a purpose; null if it never had one. */
export const ledgerOf = (tenant_id: string, purpose: Purpose): Promise<LedgerDocument | null> =>
  Ledger.findOne({ _id: purposeLedger(tenant_id, purpose), tenant_id }).lean()

/** The ledger of a tenant's month; null if it had no call. */
export const monthLedgerOf = (tenant_id: string, month: string): Promise<LedgerDocument | null> =>
  Ledger.findOne({ _id: monthLedger(tenant_id, month), tenant_id }).lean()

/** What ledgers know of a call. */
export interface LedgerCall {
  _id: string
  tenant_id: string
  purpose: Purpose
  month: string
  reserved_tokens: number
}

export type Lack = 'purpose_budget' | 'month_limit' | 'purpose_closed'

export type Reservation = { lack: Lack } | { lack: null; isLast: boolean }

/**
 * Reserves a call's tokens in both ledgers, while neither is spent: the last call may take a ledger beyond its budget,
 * and it is the only one that does, because its reservation counts for all others. `isLast`: until this call is settled
 * there is no room for another. If something lacks, nothing is reserved.
 */
export async function reserve(call: LedgerCall, monthLimit: number): Promise<Reservation> {
  const [ofPurpose, ofMonth] = await Promise.all([reserveForPurpose(call), reserveForMonth(call, monthLimit)])
  if (ofPurpose && ofMonth) {
    const isSpent = ofPurpose.tokens >= (ofPurpose.budget_tokens ?? Infinity)
    return { lack: null, isLast: isSpent || ofMonth.tokens >= monthLimit }
  }
  await settle(call, 0, 0)
  if (ofPurpose) return { lack: 'month_limit' }
  const ledger = await ledgerOf(call.tenant_id, call.purpose)
  return { lack: ledger && !ledger.closed_at ? 'purpose_budget' : 'purpose_closed' }
}

type Taken = Pick<LedgerDocument, 'tokens' | 'budget_tokens'>

const unspent = { $or: [{ budget_tokens: null }, { $expr: { $lt: ['$tokens', '$budget_tokens'] } }] }

const reserveForPurpose = (call: LedgerCall): Promise<Taken | null> =>
  take(purposeLedger(call.tenant_id, call.purpose), call, { closed_at: null, ...unspent })

async function reserveForMonth(call: LedgerCall, limit: number): Promise<Taken | null> {
  const { tenant_id, month } = call
  const _id = monthLedger(tenant_id, month)
  const room = { tokens: { $lt: limit } }
  const taken = await take(_id, call, room)
  if (taken) return taken
  try {
    await Ledger.updateOne(
      { _id, tenant_id },
      { $setOnInsert: { ...fresh(), budget_tokens: null, expires_at: endOfRecord(month) } },
      { upsert: true },
    )
  } catch (error) {
    if (!isDuplicateKey(error)) throw error // another call has just made it
  }
  return take(_id, call, room)
}

/** The ledger with the reservation; null if it has no room. By the driver, since each call does this twice. */
const take = (_id: string, call: LedgerCall, room: object): Promise<Taken | null> =>
  Ledger.collection.findOneAndUpdate(
    { _id, tenant_id: call.tenant_id, ...room } as object,
    {
      $inc: { tokens: call.reserved_tokens },
      $set: { [`open.${call._id}`]: call.reserved_tokens },
    },
    { returnDocument: 'after', projection: { tokens: 1, budget_tokens: 1 } },
  ) as Promise<Taken | null>

/** Replaces the reservations of a call by what it took. Does nothing in a ledger where it has none any more. */
export async function settle(call: LedgerCall, tokens: number, cost_nano_usd: number): Promise<void> {
  const { tenant_id, purpose, month, reserved_tokens } = call
  const open = `open.${call._id}`
  const change = { $inc: { tokens: tokens - reserved_tokens, cost_nano_usd }, $unset: { [open]: true } }
  const ids = [purposeLedger(tenant_id, purpose), monthLedger(tenant_id, month)]
  await Promise.all(
    ids.map((_id) =>
      Ledger.collection.updateOne(
        { _id, tenant_id, [open]: { $exists: true } } as object,
        change as unknown as object,
      ),
    ),
  )
}

const endOfRecord = (month: string): Date => {
  const begin = new Date(`${month}-01T00:00:00Z`)
  return new Date(begin.getTime() + (31 + keptDays) * dayMs)
}

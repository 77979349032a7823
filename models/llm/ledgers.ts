import mongoose, { Schema } from 'mongoose'
import { StateConflict } from '../../lib/problem.ts'
import { isDuplicateKey } from '../database.ts'
import { schemaOptions } from '../schemas.ts'
import { tenantScoped } from '../tenant-scope.ts'
import type { Purpose } from './purposes.ts'
import { type Concern, durable, inMemory, type Statement, update, type Written } from '../commands.ts'

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
  /** Beside that of tokens. Null: none, as for a month. */
  budget_nano_usd: number | null
  /** Of the calls with a known price that are settled. */
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
    budget_nano_usd: { type: Number, default: null },
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

/** What all calls of a purpose may take. Null: none but the tenant's limit. */
export interface Budget {
  tokens: number | null
  /** Binds the calls with a known price. */
  nano_usd: number | null
}

/**
 * Makes the ledger of a purpose, or changes its budget. What it has taken stays. Throws StateConflict if it is closed.
 */
export async function openLedger(
  tenant_id: string,
  purpose: Purpose,
  { tokens: budget_tokens, nano_usd: budget_nano_usd }: Budget,
): Promise<void> {
  const ledger = await Ledger.findOneAndUpdate(
    { _id: purposeLedger(tenant_id, purpose), tenant_id },
    { $set: { budget_tokens, budget_nano_usd }, $setOnInsert: { ...fresh(), expires_at: null } },
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

/** What the calls of these purposes have taken: of those that have a ledger. */
export const spentOn = (
  tenant_id: string,
  purposes: Purpose[],
): Promise<Pick<LedgerDocument, 'tokens' | 'cost_nano_usd'>[]> => {
  const ids = purposes.map((purpose) => purposeLedger(tenant_id, purpose))
  return Ledger.find({ _id: { $in: ids }, tenant_id }, { tokens: 1, cost_nano_usd: 1 }).lean()
}

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

export type Reservation = { lack: Lack } | { lack: null; isLast: boolean; election: string }

const mostAttempts = 3

/**
 * Reserves a call's tokens in both ledgers, while neither is spent: the last call may take a ledger beyond its budget,
 * and it is the only one that does, because its reservation counts for all others. A budget of costs
 * counts the calls that have ended, so calls at the same time may go beyond it together. `isLast`: until this call is settled
 * there is no room for another, or it is not known. If something lacks, nothing is reserved. It waits for no journal: `election` tells
 * later whether the reservation may be gone.
 */
export async function reserve(call: LedgerCall, monthLimit: number): Promise<Reservation> {
  const { modified, election } = await updateLedgers(reservations(call, monthLimit, true), inMemory)
  if (modified === 2) return { lack: null, isLast: false, election }
  let toUndo = modified
  for (let attempt = 1; ; attempt++) {
    const again = [...settlement({ call, ...nothing }), ...reservations(call, monthLimit, false)]
    const last = await updateLedgers(again, inMemory)
    if (last.modified - toUndo === 2) return { lack: null, isLast: true, election: last.election }
    toUndo = 0
    await updateLedgers(settlement({ call, ...nothing }), inMemory)
    const lack = await lackOf(call, monthLimit)
    if (lack !== null || attempt === mostAttempts) return { lack: lack ?? 'month_limit' }
  }
}

const nothing = { tokens: 0, cost_nano_usd: 0 }

const updateLedgers = (statements: Statement[], concern: Concern): Promise<Written> =>
  update(Ledger.collection.name, statements, concern)

/** For both ledgers: while they are not spent, or only if there is room for another call afterwards. */
function reservations(call: LedgerCall, monthLimit: number, withRoom: boolean): Statement[] {
  const { tenant_id, reserved_tokens } = call
  const [ofPurpose, ofMonth] = ledgersOf(call)
  const open = entryOf(call)
  const isFree = { [open]: { $exists: false } }
  const u = { $inc: { tokens: reserved_tokens }, $set: { [open]: reserved_tokens } }
  const others = withRoom ? reserved_tokens : 0
  const isBelow = { $expr: { $lt: ['$tokens', { $subtract: ['$budget_tokens', others] }] } }
  // What a call costs is known when it has ended, so a budget of costs never has room for sure.
  const isCheap = withRoom ? [] : [{ $expr: { $lt: ['$cost_nano_usd', '$budget_nano_usd'] } }]
  const isUnspent = {
    $and: [{ $or: [{ budget_tokens: null }, isBelow] }, { $or: [{ budget_nano_usd: null }, ...isCheap] }],
  }
  return [
    { q: { _id: ofPurpose, tenant_id, closed_at: null, ...isFree, ...isUnspent }, u },
    { q: { _id: ofMonth, tenant_id, tokens: { $lt: monthLimit - others }, ...isFree }, u },
  ]
}

/** What a reservation lacks; null if it may be tried again. Makes the month's ledger if there is none. */
async function lackOf({ tenant_id, purpose, month }: LedgerCall, monthLimit: number): Promise<Lack | null> {
  const [ofPurpose, ofMonth] = await Promise.all([
    ledgerOf(tenant_id, purpose),
    monthLedgerOf(tenant_id, month),
  ])
  if (!ofPurpose || ofPurpose.closed_at) return 'purpose_closed'
  if (ofPurpose.tokens >= (ofPurpose.budget_tokens ?? Infinity)) return 'purpose_budget'
  if (ofPurpose.cost_nano_usd >= (ofPurpose.budget_nano_usd ?? Infinity)) return 'purpose_budget'
  if (!ofMonth) await openMonth(tenant_id, month)
  return (ofMonth?.tokens ?? 0) >= monthLimit ? 'month_limit' : null
}

async function openMonth(tenant_id: string, month: string): Promise<void> {
  try {
    await Ledger.updateOne(
      { _id: monthLedger(tenant_id, month), tenant_id },
      {
        $setOnInsert: {
          ...fresh(),
          budget_tokens: null,
          budget_nano_usd: null,
          expires_at: endOfRecord(month),
        },
      },
      { upsert: true },
    )
  } catch (error) {
    if (!isDuplicateKey(error)) throw error // another call has just made it
  }
}

/**
 * Puts a call's reservations back where a crash of MongoDB has taken them away, whatever the budget: the call is under
 * way. Only for a call whose settlement has not begun.
 */
export function reserveAgain(call: LedgerCall): Promise<Written> {
  const { tenant_id, reserved_tokens } = call
  const open = entryOf(call)
  const change = { $inc: { tokens: reserved_tokens }, $set: { [open]: reserved_tokens } }
  const statements = ledgersOf(call).map((_id) => ({
    q: { _id, tenant_id, [open]: { $exists: false } },
    u: change,
  }))
  return updateLedgers(statements, durable)
}

/** What a call took. */
export interface Took {
  call: LedgerCall
  tokens: number
  cost_nano_usd: number
}

/** Replaces the reservations of calls by what they took. Does nothing in a ledger where a call has none any more. */
export const settle = async (calls: Took[], concern: Concern = durable): Promise<void> =>
  void (await updateLedgers(calls.flatMap(settlement), concern))

function settlement({ call, tokens, cost_nano_usd }: Took): Statement[] {
  const { tenant_id, reserved_tokens } = call
  const open = entryOf(call)
  const u = { $inc: { tokens: tokens - reserved_tokens, cost_nano_usd }, $unset: { [open]: true } }
  return ledgersOf(call).map((_id) => ({ q: { _id, tenant_id, [open]: { $exists: true } }, u }))
}

const ledgersOf = ({ tenant_id, purpose, month }: LedgerCall): [string, string] => [
  purposeLedger(tenant_id, purpose),
  monthLedger(tenant_id, month),
]
const entryOf = ({ _id }: LedgerCall): string => `open.${_id}`

const endOfRecord = (month: string): Date => {
  const begin = new Date(`${month}-01T00:00:00Z`)
  return new Date(begin.getTime() + (31 + keptDays) * dayMs)
}

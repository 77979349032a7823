import { Connector } from '../connectors/connectors.ts'
import { everyTenant } from '../tenant-scope.ts'
import { type CallDocument, type CallEnd, costOf, inLedgers, LlmCall } from './calls.ts'
import { ledgerOf, monthLedgerOf, monthOf, settle } from './ledgers.ts'
import { noUsage, type PriceOf, tokensOf, type Usage } from './prices.ts'
import type { Purpose } from './purposes.ts'

// What killed gateways leave: calls that nobody settles, and reservations that no call has.

/** Some at once, so that many lost calls do not keep a gateway busy. */
const sweptAtOnce = 100

/**
 * Settles the calls that their gateway has not settled in time, because it was killed: at what they reserved, or at
 * what their record says if it was closed. Any number of gateways may do it at once. Returns how many there were.
 */
export async function settleLostCalls(priceOf: PriceOf, now = new Date()): Promise<number> {
  const left = await LlmCall.find({ settled: false, lease_until: { $lte: now } })
    .setOptions(everyTenant)
    .sort({ lease_until: 1 })
    .limit(sweptAtOnce)
    .lean()
  for (const call of left) {
    if (call.status === 'open') await closeLost(call, priceOf)
    else await settleBy(call)
  }
  return left.length
}

async function closeLost(call: CallDocument, priceOf: PriceOf): Promise<void> {
  const { _id, tenant_id, connector_id } = call
  const connector = await Connector.findOne({ _id: connector_id, tenant_id }, { base_url: 1 }).lean()
  const at = { ...call, base_url: connector?.base_url ?? '' }
  const end = { base_url: at.base_url, ...lostEnd(at, priceOf) }
  const closed = await LlmCall.updateOne({ _id, tenant_id, status: 'open' }, { $set: end })
  if (closed.matchedCount) await settleBy({ ...call, ...end })
}

/** The ledgers get what the record says: twice is once. */
async function settleBy(call: CallDocument): Promise<void> {
  const { _id, tenant_id } = call
  if (call.reserved_tokens)
    await settle([{ call: inLedgers(call), tokens: tokensOf(call), cost_nano_usd: call.cost_nano_usd ?? 0 }])
  await LlmCall.updateOne({ _id, tenant_id }, { $set: { settled: true } })
}

type Counted = Usage & Pick<CallEnd, 'status' | 'counted_by' | 'cost_nano_usd' | 'prices_version'>

function lostEnd(call: CallDocument, priceOf: PriceOf): Counted {
  const input_tokens = Math.min(call.estimated_input_tokens, call.reserved_tokens)
  const usage = { ...noUsage, input_tokens, output_tokens: call.reserved_tokens - input_tokens }
  return { ...usage, ...costOf(priceOf, call, usage), status: 'lost', counted_by: 'reservation' }
}

/**
 * Takes back the reservations of a purpose, and of its tenant's month, that have no record: their gateway and MongoDB were
 * killed in the same moment, when the call began.
 */
export async function dropOrphans(tenant_id: string, purpose: Purpose): Promise<void> {
  const month = monthOf(new Date())
  const ledgers = await Promise.all([ledgerOf(tenant_id, purpose), monthLedgerOf(tenant_id, month)])
  const before = Date.now() - longestCallMs
  const open = new Map(ledgers.flatMap((ledger) => Object.entries(ledger?.open ?? {})))
  const old = [...open].filter(([id]) => beganAt(id) < before)
  if (!old.length) return
  const known = new Set(await LlmCall.distinct('_id', { tenant_id, _id: { $in: old.map(([id]) => id) } }))
  const orphans = old.filter(([id]) => !known.has(id))
  const calls = orphans.map(([_id, reserved_tokens]) => ({ _id, tenant_id, purpose, month, reserved_tokens }))
  await settle(calls.map((call) => ({ call, tokens: 0, cost_nano_usd: 0 })))
}

/** Longer than the longest lease of a call (KEELSON_MODELS_CALL_SEC is an hour at most). */
const longestCallMs = 2 * 3_600_000
/** A UUIDv7 begins with its time. */
const beganAt = (id: string): number => Number.parseInt(id.replace('-', '').slice(0, 12), 16)

import { everyTenant } from '../tenant-scope.ts'
import { type CallEnd, inLedgers, LlmCall, type NewCall, openRecord } from './calls.ts'
import { durable, inMemory, insert, type Statement, update } from '../commands.ts'
import { reserve, reserveAgain, type Reservation, settle } from './ledgers.ts'
import { tokensOf } from './prices.ts'

// The record and the reservations of a call, from its begin to its settlement. At the begin nothing waits for MongoDB's
// journal: the gateway that has the call puts back what a crash of MongoDB takes away, before it takes another call, and at
// the latest before the call is settled.

/** A call that this process has under way. */
export interface OpenCall {
  readonly call: NewCall
  /** In which its record and its reservations were written. `unsafe`: one of them may be gone. */
  election: string | null
  isReserved: boolean
  /** What `beginCall` reserved, and by which limit of the month. */
  early: { limit: number; got: Reservation } | null
  /** From then on a reservation that is missing was settled. */
  isSettling: boolean
  /** Its tenant is gone, or about to go: its record goes, too. */
  isVoid: boolean
  restoring: Promise<void> | null
}

const unsafe = ''
const underWay = new Map<string, OpenCall>()
const collection = LlmCall.collection.name

export const newCall = (call: NewCall): OpenCall => ({
  call,
  election: null,
  isReserved: false,
  early: null,
  isSettling: false,
  isVoid: false,
  restoring: null,
})

/** How often something was put back. */
let restored = 0

/** Of each tenant at its last call. */
const limits = new Map<string, number>()
const mostLimits = 10_000

/**
 * Writes the record of a call and, beside it, reserves its tokens by the limit of the month that its tenant had at its
 * last call. `reserveCall` says what came of it. After a crash of MongoDB the calls under way get back first what they
 * had, so that no other call takes it.
 */
export async function beginCall(one: OpenCall): Promise<void> {
  const { call } = one
  const before = restored
  const limit = limits.get(call.tenant_id)
  // The record goes first. A reservation without a record is found by `dropOrphans`.
  const recording = insert(collection, openRecord(call), inMemory)
  const reserving = limit === undefined || !call.reserved_tokens ? null : reserveFor(one, limit)
  const [recorded, reserved] = await Promise.allSettled([recording, reserving])
  if (recorded.status === 'rejected') throw recorded.reason
  if (reserved.status === 'rejected') throw reserved.reason
  const { election } = recorded.value
  noteElection(one, election)
  underWay.set(call._id, one)
  const older = [...underWay.values()].filter((other) => other.election !== election)
  if (older.length) await Promise.all(older.map(restore))
  if (limit !== undefined && reserved.value && restored === before) one.early = { limit, got: reserved.value }
}

/** Reserves the tokens of a call that has begun, unless `beginCall` has done so by this limit. */
export async function reserveCall(one: OpenCall, monthLimit: number): Promise<Reservation> {
  const { tenant_id } = one.call
  if (limits.size >= mostLimits) limits.clear()
  limits.set(tenant_id, monthLimit)
  if (one.early?.limit === monthLimit) return one.early.got
  if (one.isReserved) await settle([{ call: inLedgers(one.call), tokens: 0, cost_nano_usd: 0 }], inMemory)
  one.isReserved = false
  return reserveFor(one, monthLimit)
}

async function reserveFor(one: OpenCall, monthLimit: number): Promise<Reservation> {
  const got = await reserve(inLedgers(one.call), monthLimit)
  if (got.lack !== null) return got
  one.isReserved = true
  noteElection(one, got.election)
  return got
}

/** Of a write for the call. Two elections: a crash between them may have taken the earlier write away. */
function noteElection(one: OpenCall, election: string): void {
  one.election = one.election === null || one.election === election ? election : unsafe
}

/** Puts back the record and the reservations of all calls under way. For a gateway that reaches MongoDB again. */
export const restoreCalls = async (): Promise<void> =>
  void (await Promise.all([...underWay.values()].map(restore)))

function restore(one: OpenCall): Promise<void> {
  one.restoring ??= putBack(one).finally(() => (one.restoring = null))
  return one.restoring
}

async function putBack(one: OpenCall): Promise<void> {
  const { call } = one
  if (!isHeld(call)) return
  const record = await insert(collection, openRecord(call), durable)
  const ledgers = one.isReserved ? await reserveAgain(inLedgers(call)) : record
  one.election = ledgers.election === record.election ? record.election : unsafe
  restored++
}

interface Ended {
  one: OpenCall
  end: CallEnd
  isSettled: () => void
  isNot: (error: unknown) => void
}

// Calls that end within a moment are settled together: it takes three commands for one or for many, and they would delay
// the calls that begin meanwhile. The reservations count all the while.
const togetherMs = 20
const mostTogether = 200
let ended: Ended[] = []
let timer: NodeJS.Timeout | undefined
let settling: Promise<unknown> = Promise.resolve()

/**
 * Closes the record of a call and settles its ledgers, within a moment or `atOnce`, together with the calls that have
 * ended before it. After an error it can be called again, until it succeeds: a call is settled once. Does nothing if
 * the call was lost in the meantime, because its lease has ended.
 */
export function endCall(one: OpenCall, end: CallEnd, atOnce: boolean): Promise<void> {
  underWay.delete(one.call._id)
  const { promise, resolve: isSettled, reject: isNot } = Promise.withResolvers<void>()
  ended.push({ one, end, isSettled, isNot })
  if (atOnce || ended.length >= mostTogether) settleEnded()
  else timer ??= setTimeout(settleEnded, togetherMs)
  return promise
}

function settleEnded(): void {
  clearTimeout(timer)
  timer = undefined
  const together = ended
  ended = []
  const present = (async () => {
    await settling // the ones before, for a caller whose next call needs their room
    try {
      await settleTogether(together)
      for (const { isSettled } of together) isSettled()
    } catch (error) {
      for (const { isNot } of together) isNot(error)
    }
  })()
  settling = present
}

async function settleTogether(together: Ended[]): Promise<void> {
  // Whether anything is missing is seen when the records are closed.
  await Promise.allSettled(together.flatMap(({ one }) => one.restoring ?? []))
  const left = await closeAll(together.filter(({ one }) => !one.isVoid))
  const gone = together.filter(({ one }) => one.isVoid)
  const goneIds = gone.map(({ one }) => one.call._id)
  if (gone.length) await LlmCall.deleteMany({ _id: { $in: goneIds } }).setOptions(everyTenant)
  const found = [...left, ...gone].filter(({ one }) => one.call.reserved_tokens > 0)
  for (const { one } of found) one.isSettling = true
  await settle(
    found.map(({ one: { call }, end }) => ({
      call: inLedgers(call),
      tokens: tokensOf(end),
      cost_nano_usd: end.cost_nano_usd ?? 0,
    })),
  )
  if (!left.length) return
  // If this is lost, another gateway settles them once more after the lease, and changes nothing.
  await LlmCall.collection.updateMany(
    { _id: { $in: left.map(({ one }) => one.call._id) } } as object,
    { $set: { settled: true } },
    { writeConcern: inMemory },
  )
}

/** Closes the records, and puts back the reservations that a crash of MongoDB took away. Returns the calls to settle. */
async function closeAll(records: Ended[]): Promise<Ended[]> {
  const { matched, election } = await update(collection, records.map(closing), durable)
  const closed =
    matched === records.length
      ? records.map((each) => ({ each, election, isLost: false }))
      : await Promise.all(records.map(async (each) => ({ each, ...(await close(each)) })))
  const left = closed.filter(({ isLost }) => !isLost)
  for (const { each, election: inWhich } of left) await putReservationBack(each.one, inWhich)
  return left.map(({ each }) => each)
}

const closing = ({ one, end }: Ended): Statement => {
  const { _id, tenant_id } = one.call
  return { q: { _id, tenant_id, status: 'open' }, u: { $set: end } }
}

/** Closes a record that may be gone: then it is written anew. */
async function close(each: Ended): Promise<{ election: string; isLost: boolean }> {
  const { call } = each.one
  const { _id, tenant_id } = call
  const closed = await update(collection, [closing(each)], durable)
  if (closed.matched) return { election: closed.election, isLost: false }
  const { isDuplicate, election } = await insert(collection, { ...openRecord(call), ...each.end }, durable)
  const isLost = isDuplicate && (await LlmCall.exists({ _id, tenant_id, status: 'lost' })) !== null
  return { election, isLost }
}

async function putReservationBack(one: OpenCall, election: string): Promise<void> {
  if (one.isReserved && !one.isSettling && election !== one.election && isHeld(one.call))
    await reserveAgain(inLedgers(one.call))
}

/** Whether no other gateway settles the call for some time. */
const isHeld = ({ lease_until }: NewCall): boolean => lease_until.getTime() - Date.now() > 10_000

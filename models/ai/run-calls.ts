import { createHash } from 'node:crypto'
import { setTimeout as delay } from 'node:timers/promises'
import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { Problem } from '../../lib/problem.ts'
import { CallFault, type CallState } from '../../lib/runner-calls.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { schemaOptions } from '../schemas.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { AiRunNode, type AiRunNodeDocument, runNodeId } from './run-node-records.ts'
import { needOpenRun, type RunnerOf } from './run-nodes.ts'
import { openValue, storeSealed } from './redacted-values.ts'
import { keepValue, needValue, type StoredValue, storeValue } from './run-values.ts'

// Calls that the API makes for the nodes of runs. Each has a record, so that an attempt that repeats it gets the result of the first
// instead of a second effect. The API that makes a call renews the record's lease; when the lease has ended, the call is made again.

interface AiRunCallDocument {
  /** A hash of the run, the node, the call's name and what it asks. */
  _id: string
  tenant_id: string
  run_id: string
  node: string
  /** The attempt that hears of a failure. A later one makes the call again. */
  attempt: number
  /** Who makes the call: each write of its end names it. */
  claim: string
  status: 'open' | 'done' | 'failed'
  lease_until: Date
  output: StoredValue | null
  is_error: boolean
  fault: { code: string; message: string; permanent: boolean } | null
  /** Of the output: an index has it. */
  bytes: number
}

const schema = new Schema<AiRunCallDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    run_id: { type: String, required: true },
    node: { type: String, required: true },
    attempt: { type: Number, required: true },
    claim: { type: String, required: true },
    status: { type: String, required: true, enum: ['open', 'done', 'failed'] },
    lease_until: { type: Date, required: true },
    output: { type: Schema.Types.Mixed, default: null },
    is_error: { type: Boolean, default: false },
    fault: { type: Schema.Types.Mixed, default: null },
    bytes: { type: Number, default: 0 },
  },
  { ...schemaOptions, collection: 'ai_run_calls' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, run_id: 1, bytes: 1 })
export const AiRunCall = mongoose.model<AiRunCallDocument>('AiRunCall', schema)

const leaseMs = 30_000
const renewsMs = 5_000
/** Of one run. */
const most = { calls: 10_000, bytes: 64 * 1024 ** 2 }
/** Calls that one process makes at a time: each may have an answer of 8 MiB in memory. */
const atOnce = { ofTenant: 16, all: 32 }

export interface CallResult {
  /** JSON. */
  output: string
  is_error: boolean
}
/** Makes the call. Throws CallFault. */
export type MakeCall = (signal: AbortSignal) => Promise<CallResult>

/** One call of a node. */
export interface RunCall {
  run_id: string
  node: string
  attempt: number
  /** Its name and what it asks, as JSON. */
  asked: unknown
}

const making = new Map<string, { tenant_id: string; end: Promise<void> }>()

/**
 * Makes a call once, however often it is asked for, and says within `waitMs` how it stands. Throws NotFound, and
 * `attempt_over` if the run has ended or another attempt has begun.
 */
export async function callOnce(
  runner: RunnerOf,
  call: RunCall,
  waitMs: number,
  make: MakeCall,
): Promise<CallState> {
  const { tenant_id } = runner
  const { redaction_json } = await needAttempt(runner, call)
  const _id = idOf(call)
  const until = Date.now() + waitMs
  const found = await AiRunCall.findOne({ _id, tenant_id }).lean()
  if (!found || mayBeMade(found, call.attempt)) {
    const isFull = making.size >= atOnce.all || countOf(tenant_id) >= atOnce.ofTenant
    if (isFull) await delay(waitMs)
    else {
      const refused = found ? null : await boundOf(runner, call.run_id)
      if (refused) return refused
      const claim = await claimed(tenant_id, _id, call)
      if (claim) begin(runner, call, { _id, claim, isSealed: redaction_json !== undefined }, make)
    }
  }
  const here = making.get(_id)
  if (here) await Promise.race([here.end, delay(Math.max(0, until - Date.now()), undefined, { ref: false })])
  for (;;) {
    const record = await AiRunCall.findOne({ _id, tenant_id }).lean()
    if (record?.status === 'done' || (record?.status === 'failed' && record.attempt >= call.attempt))
      return stateOf(record)
    if (Date.now() >= until) return { state: 'open' }
    await delay(Math.min(500, Math.max(1, until - Date.now()))) // another process makes it
  }
}

const countOf = (tenant_id: string): number =>
  [...making.values()].filter((one) => one.tenant_id === tenant_id).length

const idOf = ({ run_id, node, asked }: RunCall): string =>
  createHash('sha256')
    .update(JSON.stringify([run_id, node, asked]))
    .digest('hex')

async function needAttempt(
  runner: RunnerOf,
  { run_id, node, attempt }: RunCall,
): Promise<Pick<AiRunNodeDocument, 'redaction_json'>> {
  await needOpenRun(runner, run_id)
  const { tenant_id } = runner
  const its = { _id: runNodeId(run_id, node), tenant_id, status: 'running' as const, attempt }
  const record = await AiRunNode.findOne(its, { redaction_json: 1 }).lean()
  if (!record) throw new Problem(409, 'attempt_over', 'The attempt is over', 'Another attempt has begun')
  return record
}

const mayBeMade = ({ status, attempt, lease_until }: AiRunCallDocument, by: number): boolean =>
  status === 'open' ? lease_until.getTime() < Date.now() : status === 'failed' && attempt < by

/** Refuses a further call of a run that has made too many. */
async function boundOf({ tenant_id }: RunnerOf, run_id: string): Promise<CallState | null> {
  const [sums] = await AiRunCall.aggregate<{ calls: number; bytes: number }>([
    { $match: { tenant_id, run_id } },
    { $group: { _id: null, calls: { $sum: 1 }, bytes: { $sum: '$bytes' } } },
  ])
  const failed = { state: 'failed', permanent: true } as const
  if ((sums?.calls ?? 0) >= most.calls)
    return { ...failed, code: 'too_many_calls', message: `The run has made ${most.calls} calls` }
  if ((sums?.bytes ?? 0) >= most.bytes)
    return {
      ...failed,
      code: 'too_large',
      message: `The answers to the run’s calls have more than ${most.bytes / 1024 ** 2} MiB together`,
    }
  return null
}

/** Takes the call. Null: another process has it, or it has ended. */
async function claimed(tenant_id: string, _id: string, call: RunCall): Promise<string | null> {
  const { run_id, node, attempt } = call
  const claim = newId()
  const now = new Date()
  const taken = { attempt, claim, status: 'open' as const, lease_until: new Date(now.getTime() + leaseMs) }
  const { matchedCount } = await AiRunCall.updateOne(
    {
      _id,
      tenant_id,
      $or: [
        { status: 'open', lease_until: { $lt: now } },
        { status: 'failed', attempt: { $lt: attempt } },
      ],
    },
    { $set: { ...taken, fault: null } },
  )
  if (matchedCount) return claim
  try {
    const { upsertedCount } = await AiRunCall.updateOne(
      { _id, tenant_id },
      { $setOnInsert: { ...taken, run_id, node } },
      { upsert: true },
    )
    return upsertedCount ? claim : null
  } catch (error) {
    if (isDuplicateKey(error)) return null // two at once
    throw error
  }
}

interface Claim {
  _id: string
  claim: string
  /** The node has redacted values. */
  isSealed: boolean
}

function begin(runner: RunnerOf, call: RunCall, its: Claim, make: MakeCall): void {
  const end = carryOut(runner, call, its, make).finally(() => {
    if (making.get(its._id)?.end === end) making.delete(its._id)
  })
  end.catch(() => {}) // who waits for it has the error
  making.set(its._id, { tenant_id: runner.tenant_id, end })
}

async function carryOut(
  runner: RunnerOf,
  { run_id }: RunCall,
  { _id, claim, isSealed }: Claim,
  make: MakeCall,
): Promise<void> {
  const { tenant_id } = runner
  const ending = new AbortController()
  const mine = { _id, tenant_id, claim, status: 'open' as const }
  const renewing = setInterval(() => void renew().catch(() => {}), renewsMs)
  async function renew(): Promise<void> {
    const lease_until = new Date(Date.now() + leaseMs)
    const { matchedCount } = await AiRunCall.updateOne(mine, { $set: { lease_until } })
    if (!matchedCount) ending.abort()
    // A run that is cancelled has no use for the answer.
    await needOpenRun(runner, run_id).catch((error: unknown) => {
      if (error instanceof Problem) ending.abort()
    })
  }
  try {
    const made = await make(ending.signal).then(
      (result) => ({ result }),
      (error: unknown) => ({ error }),
    )
    await untilKept(async () => {
      if ('result' in made)
        await keep(
          mine,
          made.result,
          isSealed ? (json) => storeSealed({ _id: run_id, tenant_id }, json) : storeValue,
        )
      else await AiRunCall.updateOne(mine, { $set: { status: 'failed', fault: faultOf(made.error) } })
    })
    if ('error' in made && !isExpected(made.error)) throw made.error
  } finally {
    clearInterval(renewing)
  }
}

type Mine = Omit<Claim, 'isSealed'> & { tenant_id: string }

async function keep(
  mine: Mine,
  { output, is_error }: CallResult,
  store: (json: string) => Promise<StoredValue>,
): Promise<void> {
  const fault = valueFault(output)
  if (fault) {
    await AiRunCall.updateOne(mine, { $set: { status: 'failed', fault } })
    return
  }
  const value = await store(output)
  await transaction(async () => {
    const { matchedCount } = await AiRunCall.updateOne(mine, {
      $set: { status: 'done', output: value, bytes: value.bytes, is_error },
    })
    if (matchedCount) await keepValue(value)
  })
}

function valueFault(output: string): AiRunCallDocument['fault'] {
  try {
    needValue(output)
    return null
  } catch (error) {
    return faultOf(error)
  }
}

const keepsWithinMs = 25_000

/** MongoDB may be away for a moment, and the call has had its effect. */
async function untilKept(write: () => Promise<void>): Promise<void> {
  const until = Date.now() + keepsWithinMs
  for (;;) {
    try {
      return await write()
    } catch (error) {
      if (Date.now() >= until) throw error
      await delay(500)
    }
  }
}

const isExpected = (error: unknown): error is CallFault | Problem =>
  error instanceof CallFault || error instanceof Problem

function faultOf(error: unknown): NonNullable<AiRunCallDocument['fault']> {
  if (error instanceof CallFault) {
    const { code, message, permanent } = error
    return { code, message: message.slice(0, 1_000), permanent }
  }
  if (error instanceof Problem)
    return { code: error.code, message: error.message, permanent: error.status < 500 && error.status !== 429 }
  return { code: 'internal', message: 'The platform failed; its operators can see why', permanent: false }
}

async function stateOf(record: AiRunCallDocument): Promise<CallState> {
  const { status, output, is_error, fault, run_id, tenant_id } = record
  if (status === 'done' && output)
    return { state: 'done', output: await openValue({ _id: run_id, tenant_id }, output), is_error }
  return { state: 'failed', ...(fault ?? faultOf(null)) }
}

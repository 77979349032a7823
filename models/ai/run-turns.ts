import { setTimeout as delay } from 'node:timers/promises'
import type { NodeSpec } from '../../lib/ai/node-kinds.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import type { Turn, Turned } from '../../lib/runner-protocol.ts'
import { transaction } from '../database.ts'
import { inputHashOf } from './node-reuse.ts'
import { AiRunNode, runNodeId } from './run-node-records.ts'
import {
  beginNode,
  beginStep,
  begunBy,
  countedBy,
  type Ending,
  given,
  givenForOutput,
  giveWithRoom,
  isDone,
  keepBoth,
  needOpen,
  over,
  type RunnerOf,
  runOfRunner,
  storeRunOutput,
  valueOf,
  valuesOf,
  versionOfRunner,
} from './run-nodes.ts'
import { needValue } from './run-values.ts'
import { endRun } from './run-ends.ts'
import { callsAreSettled } from './run-models.ts'
import { addTokens, lastTokens } from './run-tokens.ts'
import { keyedHash, outputFields, redactionOfNode } from './run-redaction.ts'
import type { AiRunDocument } from './runs.ts'
import type { ReadVersion } from './versions.ts'

// The end of a node and the beginning of what follows it, or the end of its run, in one request and one transaction.

/** Of a node in a row: each begins once there. An attempt after a failure is an activity of its own. */
const firstAttempt = 1

/**
 * Ends a node that has succeeded, and begins the first attempt of the node after it, or ends the run with its output, or gives
 * the values of which that is made. Nothing follows in a run that is to be cancelled, or has used its time. Repeated, it changes nothing
 * more. Throws NotFound, `attempt_over`, and as `needValue`.
 */
export async function turnNode(
  runner: RunnerOf,
  run_id: string,
  node: string,
  attempt: number,
  { case: chosen, output: json, tokens, next: wanted }: Turn,
): Promise<Turned> {
  const { tenant_id } = runner
  const _id = runNodeId(run_id, node)
  const isLast = wanted !== null && typeof wanted === 'object' && 'output' in wanted
  const [record, run, version, last] = await Promise.all([
    AiRunNode.findOne({ _id, tenant_id, run_id }).lean(),
    runOfRunner(runner, run_id),
    versionOfRunner(runner),
    tokens.length > 0 ? lastTokens(tenant_id, run_id) : null,
  ])
  if (!record) throw new NotFound('node')
  if (isDone(record, attempt)) return repeated(runner, run, wanted)
  if (!run.open) throw over('The run has ended')
  const output = await valueOf(record, json)
  const whole = { ...output.shown, json }
  const ending: Ending = { node, status: 'succeeded', case: chosen, output: whole, error: null }
  const [isSettled, follow] = await Promise.all([
    isLast && settledSoon(run),
    wanted && follower(runner, run, version, wanted, ending),
    // They come before the node's end, or are lost.
    tokens.length > 0 ? addTokens(run, tokens, last).catch(() => {}) : null,
  ])
  const contended = isSettled ? run.workflow_id : run_id // ends of runs change their workflow's record
  const answer = await transaction(async () => {
    const held = await needOpen(runner, run_id, countedBy(output.shown))
    const { matchedCount } = await AiRunNode.updateOne(
      { _id, tenant_id, status: 'running', attempt },
      { $set: { status: 'succeeded', case: chosen, ...outputFields(output), ended_at: new Date() } },
    )
    if (!matchedCount) throw over('Another attempt has begun, or the node has ended')
    await keepBoth(output)
    return held.cancel_requested_at || isOutOfTime(held, version) ? null : follow?.(isSettled)
  }, contended)
  return (await answer?.()) ?? nothing
}

const nothing: Turned = { begun: null }

/** Has something follow, in a transaction that holds the run. Returns what to answer once that is committed. */
type Follow = (isSettled: boolean) => Promise<() => Promise<Turned>>

/** What follows. Null: it has no value, as it will say itself when it begins. */
async function follower(
  runner: RunnerOf,
  run: AiRunDocument,
  version: ReadVersion,
  wanted: NonNullable<Turn['next']>,
  ending: Ending,
): Promise<Follow | null> {
  try {
    if (wanted === 'output') {
      const values = await given(run, version.spec, version.plan.output.uses, ending)
      return async () => async () => ({ begun: { done: null, ...values } })
    }
    if ('output' in wanted) {
      needValue(wanted.output)
      const output = await storeRunOutput(run, version, wanted.output)
      return async (isSettled) => {
        const isGiven = await giveWithRoom(runner, run._id, output)
        // Else its workflow ends it, a moment later, so that an ended run shows what it took.
        if (isGiven && isSettled) await endRun(run, { status: 'succeeded' })
        return async () => ({ begun: null, output: isGiven })
      }
    }
    const { node } = wanted
    const values = await valuesOf(run, version, node, ending)
    const redaction = redactionOfNode(run, version.plan, node, version.spec.nodes[node] as NodeSpec)
    const input_sha256 = await keyedHash(run, await inputHashOf(version, node, values), redaction)
    const beginning = { step: { node }, attempt: firstAttempt, input_sha256, redaction, isHeld: true }
    return async () => {
      const record = await beginStep(runner, run, beginning)
      return async () => ({ begun: await begunBy(run, record, firstAttempt, values) })
    }
  } catch (error) {
    if (error instanceof Problem && error.code === 'too_large') return null
    throw error
  }
}

/** The answer to an earlier request was lost. */
async function repeated(runner: RunnerOf, run: AiRunDocument, wanted: Turn['next']): Promise<Turned> {
  if (wanted === null) return nothing
  if (wanted === 'output') return { begun: { done: null, ...(await givenForOutput(runner, run._id)) } }
  if ('output' in wanted) return { begun: null, output: run.output !== null }
  return { begun: await beginNode(runner, run._id, wanted.node, firstAttempt) }
}

const settleLooks = { most: 5, everyMs: 8 }

/** Whether all that the run's nodes have called is counted, as it is some 30 ms after an answer. */
async function settledSoon(run: AiRunDocument): Promise<boolean> {
  for (let look = 1; ; look++) {
    if (await callsAreSettled(run)) return true
    if (look === settleLooks.most) return false
    await delay(settleLooks.everyMs)
  }
}

const isOutOfTime = (
  { started_at }: Pick<AiRunDocument, 'started_at'>,
  { spec }: Pick<ReadVersion, 'spec'>,
): boolean => started_at !== null && started_at.getTime() + spec.budget.wall_sec * 1000 <= Date.now()

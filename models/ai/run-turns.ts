import type { NodeSpec } from '../../lib/ai/node-kinds.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import type { Given, Turn, Turned } from '../../lib/runner-protocol.ts'
import { transaction } from '../database.ts'
import { inputHashOf } from './node-reuse.ts'
import { AiRunNode, type AiRunNodeDocument, runNodeId } from './run-node-records.ts'
import {
  beginNode,
  beginStep,
  begunBy,
  countedBy,
  type Ending,
  given,
  givenForOutput,
  isDone,
  keepBoth,
  needOpen,
  over,
  type RunnerOf,
  runOfRunner,
  valueOf,
  valuesOf,
  versionOfRunner,
} from './run-nodes.ts'
import { addTokens } from './run-tokens.ts'
import { keyedHash, outputFields, redactionOfNode } from './run-redaction.ts'
import type { AiRunDocument } from './runs.ts'

// The end of a node and the beginning of what follows it, in one request and one transaction.

type Version = Awaited<ReturnType<typeof versionOfRunner>>

/** Of a node in a row: each begins once there. An attempt after a failure is an activity of its own. */
const firstAttempt = 1

/**
 * Ends a node that has succeeded, and begins the first attempt of the node after it, or gives the values of the run's output.
 * Nothing begins of a run that is to be cancelled, or has used its time. Repeated, it changes nothing more. Throws NotFound,
 * `attempt_over`, and as `needValue`.
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
  const [record, run, version] = await Promise.all([
    AiRunNode.findOne({ _id, tenant_id, run_id }).lean(),
    runOfRunner(runner, run_id),
    versionOfRunner(runner),
  ])
  if (!record) throw new NotFound('node')
  if (isDone(record, attempt)) return { begun: await repeated(runner, run_id, wanted) }
  if (!run.open) throw over('The run has ended')
  const output = await valueOf(record, json)
  const whole = { ...output.shown, json }
  const ending: Ending = { node, status: 'succeeded', case: chosen, output: whole, error: null }
  const [next] = await Promise.all([
    wanted && nextOf(run, version, wanted, ending),
    // They come before the node's end, or are lost.
    tokens.length > 0 ? addTokens(run, tokens).catch(() => {}) : null,
  ])
  const turned = await transaction(async () => {
    const held = await needOpen(runner, run_id, countedBy(output.shown))
    const { matchedCount } = await AiRunNode.updateOne(
      { _id, tenant_id, status: 'running', attempt },
      { $set: { status: 'succeeded', case: chosen, ...outputFields(output), ended_at: new Date() } },
    )
    if (!matchedCount) throw over('Another one has begun, or the node has ended')
    await keepBoth(output)
    if (!next || held.cancel_requested_at || isOutOfTime(held, version)) return null
    return { record: next.node === null ? null : await beginStep(runner, run, next.beginning) }
  }, run_id)
  if (!turned || !next) return { begun: null }
  return { begun: await begunOf(turned.record, next.values) }
}

const begunOf = async (record: AiRunNodeDocument | null, values: Given) =>
  record ? begunBy(record, firstAttempt, values) : { done: null, ...values }

/** What follows, with its values. Null: it has none, as it will say itself when it begins. */
async function nextOf(
  run: AiRunDocument,
  version: Version,
  wanted: NonNullable<Turn['next']>,
  ending: Ending,
) {
  const node = wanted === 'output' ? null : wanted.node
  try {
    if (node === null) {
      const { spec, plan } = version
      return { node, values: await given(run, spec, plan.output.uses, ending) }
    }
    const values = await valuesOf(run, version, node, ending)
    const redaction = redactionOfNode(run, version.plan, node, version.spec.nodes[node] as NodeSpec)
    const input_sha256 = await keyedHash(run, await inputHashOf(version, node, values), redaction)
    const step = { node }
    return {
      node,
      values,
      beginning: { step, attempt: firstAttempt, input_sha256, redaction, isHeld: true },
    }
  } catch (error) {
    if (error instanceof Problem && error.code === 'too_large') return null
    throw error
  }
}

/** The answer to an earlier request was lost. */
async function repeated(runner: RunnerOf, run_id: string, wanted: Turn['next']): Promise<Turned['begun']> {
  if (wanted === null) return null
  if (wanted === 'output') return { done: null, ...(await givenForOutput(runner, run_id)) }
  return beginNode(runner, run_id, wanted.node, firstAttempt)
}

const isOutOfTime = ({ started_at }: Pick<AiRunDocument, 'started_at'>, { spec }: Version): boolean =>
  started_at !== null && started_at.getTime() + spec.budget.wall_sec * 1000 <= Date.now()

import { mark } from '../../lib/ai/redaction.ts'
import { NotFound, Problem, StateConflict } from '../../lib/problem.ts'
import type { NodeEnd } from '../../lib/runner-protocol.ts'
import { transaction } from '../database.ts'
import { everyTenant } from '../tenant-scope.ts'
import { AiRunNode, type AiRunNodeDocument, type Decision, runNodeId } from './run-node-records.ts'
import { needOpen, over, type RunnerOf, runOfRunner, versionOfRunner } from './run-nodes.ts'
import { type AiRunDocument, runOf } from './runs.ts'

// Decisions of people. The record is the truth: a decision ends its node at once, and the run's workflow is told of it then.

/** Bytes: all messages of a run are shown together. */
const messageBytes = 16 * 1024

/** Has a node wait for a person. `message`: JSON of a text. Throws NotFound, `attempt_over`, `too_large`. */
export async function askPerson(
  runner: RunnerOf,
  run_id: string,
  node: string,
  attempt: number,
  message: string,
): Promise<void> {
  const { spec } = await versionOfRunner(runner)
  const its = Object.hasOwn(spec.nodes, node) ? spec.nodes[node] : undefined
  if (its?.kind !== 'approve') throw new NotFound('node')
  if (Buffer.byteLength(message) > messageBytes)
    throw new Problem(
      422,
      'too_large',
      'The message is too large',
      `The message has more than ${messageBytes / 1024} KiB`,
    )
  const { redacts } = await runOfRunner(runner, run_id)
  const text = redacts === 'all' ? mark : String(JSON.parse(message))
  const { tenant_id } = runner
  const _id = runNodeId(run_id, node)
  await transaction(async () => {
    await needOpen(runner, run_id, {})
    const deadline_at = new Date(Date.now() + its.deadline_sec * 1000)
    const { matchedCount } = await AiRunNode.updateOne(
      { _id, tenant_id, status: 'running', attempt },
      { $set: { status: 'waiting', asked: { message: text, deadline_at } } },
    )
    if (matchedCount) return
    if (!(await AiRunNode.exists({ _id, tenant_id, attempt, status: 'waiting' })))
      throw over('Another attempt has begun, or the node has ended')
  }, run_id)
}

export interface NewDecision {
  approved: boolean
  comment: string
  /** The e-mail address of a user, the name of another caller. */
  by: string
}

/**
 * Decides what a node asks. Repeated, it is the same decision. Throws NotFound, `already_decided`, `deadline_over`, StateConflict.
 */
export async function decide(
  tenant_id: string,
  workflow_id: string,
  run_id: string,
  node: string,
  given: NewDecision,
): Promise<AiRunNodeDocument> {
  const run = await runOf(tenant_id, workflow_id, run_id)
  const _id = runNodeId(run_id, node)
  return transaction(async () => {
    const record = await AiRunNode.findOne({ _id, tenant_id, asked: { $exists: true } }).lean()
    if (!record?.asked) throw new NotFound('node')
    if (record.decision) {
      if (isSame(record.decision, given)) return record
      throw new AlreadyDecided(record.decision)
    }
    if (record.status !== 'waiting') throw new StateConflict('decide', record.status)
    const at = new Date()
    if (record.asked.deadline_at <= at)
      throw new Problem(
        409,
        'deadline_over',
        'The deadline has passed',
        `The deadline was ${record.asked.deadline_at.toISOString()}`,
      )
    const decision: Decision = { ...given, at }
    const change = given.approved ? approval(decision) : refusal(decision)
    await needOpen(runnerOf(run), run_id, { bytes: change.output?.bytes ?? 0 })
    const decided = await AiRunNode.findOneAndUpdate(
      { _id, tenant_id, status: 'waiting' },
      { $set: { ...change, decision, untold: true, ended_at: at } },
      { returnDocument: 'after' },
    ).lean()
    if (!decided) throw new StateConflict('decide', record.status)
    return decided
  }, run_id)
}

const isSame = (one: Decision, other: NewDecision): boolean =>
  one.approved === other.approved && one.comment === other.comment && one.by === other.by

function approval({ by, comment, at }: Decision) {
  const json = JSON.stringify({ by, comment, at: at.toISOString() })
  return { status: 'succeeded' as const, output: { bytes: Buffer.byteLength(json), json, blob: null } }
}

const refusal = ({ by, comment }: Decision) => ({
  status: 'failed' as const,
  error: { code: 'refused', message: comment ? `${by} refused: ${comment}` : `${by} refused` },
  output: null,
})

class AlreadyDecided extends Problem {
  constructor({ approved, by, at }: Decision) {
    super(
      409,
      'already_decided',
      'Another decision was already made',
      `${by} has ${approved ? 'approved' : 'refused'}`,
      { extensions: { decision: { approved, by, at: at.toISOString() } } },
    )
  }
}

const runnerOf = ({ deployment_id, tenant_id, workflow_id, version }: AiRunDocument): RunnerOf => ({
  id: deployment_id,
  tenant_id,
  workflow_id,
  version,
})

/** How a node that waits for a person stands. */
export type Waiting =
  | { end: NodeEnd; error: { code: string; message: string } | null }
  /** The time until its deadline. */
  | { end: null; left_ms: number }

/** Throws NotFound. */
export async function lookAtDecision(
  { _id: run_id, tenant_id }: Pick<AiRunDocument, '_id' | 'tenant_id'>,
  node: string,
): Promise<Waiting> {
  const record = await AiRunNode.findOne({ _id: runNodeId(run_id, node), tenant_id }).lean()
  if (!record) throw new NotFound('node')
  const { status, asked, error } = record
  if (status === 'waiting' && asked) return { end: null, left_ms: asked.deadline_at.getTime() - Date.now() }
  if (status === 'running' || status === 'waiting')
    throw new Error(`${run_id}/${node} does not wait for a person`)
  return { end: { status, case: null }, error }
}

/** Records that the run's workflow has been told. */
export async function markDecisionTold(run_id: string, node: string): Promise<void> {
  await AiRunNode.updateOne({ _id: runNodeId(run_id, node) }, { $unset: { untold: 1 } }).setOptions(
    everyTenant,
  )
}

/** Decisions of which the runs' workflows were not told within `olderMs`. */
export const findUntoldDecisions = (
  olderMs: number,
  limit: number,
): Promise<Pick<AiRunNodeDocument, '_id' | 'run_id' | 'node'>[]> =>
  AiRunNode.find({ untold: true, ended_at: { $lt: new Date(Date.now() - olderMs) } }, { run_id: 1, node: 1 })
    .setOptions(everyTenant)
    .limit(limit)
    .lean()

import type { Spec } from '../../lib/ai/spec.ts'
import { NotFound } from '../../lib/problem.ts'
import type { NodeEnd } from '../../lib/runner-protocol.ts'
import { AiRunNode, type AiRunNodeDocument, openNodeStates, runNodeId } from './run-node-records.ts'
import { markedError } from './run-redaction.ts'
import { AiRun, type AiRunDocument } from './runs.ts'
import { knownVersion } from './versions.ts'

// What the run's workflow, and those who look at it, ask of nodes.

type Run = Pick<AiRunDocument, '_id' | 'tenant_id'>

/** Records that nodes are skipped without an attempt. */
export async function skipNodes({ _id: run_id, tenant_id }: Run, names: string[]): Promise<void> {
  const ended_at = new Date()
  await AiRunNode.bulkWrite(
    names.map((node) => ({
      updateOne: {
        filter: { _id: runNodeId(run_id, node), tenant_id },
        update: { $setOnInsert: { run_id, node, status: 'skipped' as const, ended_at } },
        upsert: true,
      },
    })),
  )
}

/**
 * Ends a node without an answer of its runner, and returns how it stands: an attempt may have recorded its output, and its
 * answer was lost.
 */
export async function settleNode(
  { _id: run_id, tenant_id }: Run,
  node: string,
  status: 'failed' | 'cancelled',
  fault: { code: string; message: string } | null,
): Promise<NodeEnd> {
  const _id = runNodeId(run_id, node)
  const now = new Date()
  const found = await AiRunNode.findOne({ _id, tenant_id }).lean()
  if (found && found.ended_at) return { status: found.status as NodeEnd['status'], case: found.case }
  const error = fault && found?.redaction_json !== undefined ? markedError(fault) : fault
  // If it has begun meanwhile and ended, there is a duplicate key, and the caller tries again.
  const settled = await AiRunNode.updateOne(
    { _id, tenant_id, status: { $in: [...openNodeStates] } },
    { $set: { status, error, ended_at: now }, $setOnInsert: { run_id, node, started_at: null } },
    { upsert: found === null },
  )
  // The attempt has just ended it.
  if (!settled.matchedCount && !settled.upsertedCount)
    return settleNode({ _id: run_id, tenant_id }, node, status, fault)
  return { status, case: null }
}

/**
 * How far the nodes of a row are: how those at its beginning have ended, whether the one after them has begun, whether the run
 * has its output, and whether it is over. For a row whose activity gave no answer.
 */
export async function lookAtRow(
  { _id: run_id, tenant_id }: Run,
  names: string[],
): Promise<{ ends: NodeEnd[]; hasBegun: boolean; hasOutput: boolean; isOver: boolean }> {
  const ids = names.map((name) => runNodeId(run_id, name))
  const [records, run] = await Promise.all([
    AiRunNode.find({ _id: { $in: ids }, tenant_id }, { output: 0, whole: 0 }).lean(),
    AiRun.findOne({ _id: run_id, tenant_id }, { open: 1, output: 1 }).lean(),
  ])
  const its = { hasOutput: Boolean(run?.output), isOver: !run?.open }
  const ends: NodeEnd[] = []
  for (const name of names) {
    const record = records.find(({ node }) => node === name)
    if (!record?.ended_at) return { ends, hasBegun: record !== undefined, ...its }
    ends.push({ status: record.status as NodeEnd['status'], case: record.case })
  }
  return { ends, hasBegun: false, ...its }
}

/** The nodes of a run that have begun or were skipped, in the order of their beginnings, without the JSON of their outputs. */
export const nodesOf = ({ _id: run_id, tenant_id }: Run): Promise<AiRunNodeDocument[]> =>
  AiRunNode.find({ tenant_id, run_id, map: null }, { 'output.json': 0, 'whole.json': 0 })
    .sort({ started_at: 1, _id: 1 })
    .lean()

/** One node of a run. Throws NotFound. */
export async function nodeOf({ _id: run_id, tenant_id }: Run, node: string): Promise<AiRunNodeDocument> {
  const found = await AiRunNode.findOne({ _id: runNodeId(run_id, node), tenant_id }).lean()
  if (!found) throw new NotFound('node')
  return found
}

/** The spec of a run's version. */
export async function specOfRun({ tenant_id, workflow_id, version }: AiRunVersion): Promise<Spec> {
  return (await knownVersion({ _id: workflow_id, tenant_id }, version)).spec
}
type AiRunVersion = Pick<AiRunDocument, 'tenant_id' | 'workflow_id' | 'version'>

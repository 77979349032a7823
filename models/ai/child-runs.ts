import { bounds, runBounds } from '../../lib/ai/bounds.ts'
import { stepNamed } from '../../lib/ai/steps.ts'
import { InvalidInput, NotFound, Problem } from '../../lib/problem.ts'
import type { Called } from '../../lib/runner-maps.ts'
import type { NodeEnd } from '../../lib/runner-protocol.ts'
import { transaction } from '../database.ts'
import { acceptAiRun } from './run-acceptance.ts'
import { storeOfItems, writeEnds } from './run-items.ts'
import { AiRunNode, runNodeId } from './run-node-records.ts'
import {
  beginNode,
  keepBoth,
  needOpen,
  over,
  runOfRunner,
  type RunnerOf,
  versionOfRunner,
} from './run-nodes.ts'
import { outputFields, storeOutputOf, wholeOf } from './run-redaction.ts'
import { needValue } from './run-values.ts'
import { AiRun, type AiRunDocument, findRun, type RunParent } from './runs.ts'

// Runs that are a part of another run: a node, or an item of a map, of kind `workflow`.

/**
 * Accepts the run of an attempt of a node or an item, once. The workflow of the run it is a part of starts it. Throws NotFound,
 * `attempt_over`.
 */
export async function callWorkflow(
  runner: RunnerOf,
  run_id: string,
  name: string,
  attempt: number,
  input_json: string,
): Promise<Called> {
  const { tenant_id } = runner
  const { spec, plan, uses } = await versionOfRunner(runner)
  const named = stepNamed(spec.nodes, name)
  if (named?.step.kind !== 'workflow') throw new NotFound('node')
  if (await hasEnded(runner, run_id, name, attempt, named.item)) return { state: 'done' }
  const run = await runOfRunner(runner, run_id)
  const { workflow: reference, version = null } = named.step
  const use = uses.find((one) => one.kind === 'workflow' && one.reference === reference)
  if (!use?.id) throw new NotFound('workflow')
  const parent: RunParent = { run_id, node: named.map ?? name, item: named.item, attempt }
  const redactsAll = run.redacts === 'all' || (plan.redacted?.nodes[parent.node]?.is_given ?? false)
  try {
    const child = await accepted(run, use.id, { version, parent, redactsAll }, input_json)
    await AiRunNode.updateOne(
      { _id: runNodeId(run_id, name), tenant_id },
      { $set: { child_run_id: child._id } },
    )
    const { _id, workflow_id: of } = child
    return { state: 'accepted', run: { _id, tenant_id, workflow_id: of, version: child.version } }
  } catch (error) {
    if (!(error instanceof Problem) || error.code === 'attempt_over') throw error
    return { state: 'refused', code: error.code, message: sayingOf(error).slice(0, 1_000) }
  }
}

/** Begins an attempt of an item, which has no record before. */
async function hasEnded(
  runner: RunnerOf,
  run_id: string,
  name: string,
  attempt: number,
  item: number | null,
): Promise<boolean> {
  if (item !== null) return (await beginNode(runner, run_id, name, attempt)).done !== null
  const _id = runNodeId(run_id, name)
  const record = await AiRunNode.findOne({ _id, tenant_id: runner.tenant_id }, { status: 1 }).lean()
  if (!record) throw new NotFound('node')
  return record.status !== 'running'
}

async function accepted(
  run: AiRunDocument,
  workflow_id: string,
  { version, parent, redactsAll }: { version: number | null; parent: RunParent; redactsAll: boolean },
  input_json: string,
): Promise<AiRunDocument> {
  const { tenant_id, requested_by } = run
  const depth = (run.depth ?? 1) + 1
  if (depth > bounds.workflowDepth)
    throw new Problem(
      409,
      'depth_too_high',
      'The runs are nested too deeply',
      `At most ${bounds.workflowDepth} workflows can run within each other`,
    )
  if (Buffer.byteLength(input_json) > runBounds.inputBytes)
    throw new Problem(422, 'too_large', 'The input is too large', 'The input has more than 1 MiB')
  needValue(input_json)
  const its = { tenant_id, parent_key: keyOf(parent) }
  const find = () => AiRun.findOne(its).lean()
  return (
    (await find()) ??
    acceptAiRun({ tenant_id, id: requested_by }, workflow_id, {
      input: JSON.parse(input_json) as unknown,
      canary_key: null,
      trigger: 'workflow',
      redactsAll,
      called: {
        version,
        async hold() {
          const open = { _id: run._id, tenant_id, open: true as const }
          const held = await AiRun.updateOne(open, { $inc: { children: 1 } })
          if (!held.matchedCount) throw over('The run has ended')
          return find()
        },
        fields: { parent, parent_key: its.parent_key, depth },
      },
    })
  )
}

const keyOf = ({ run_id, node, item, attempt }: RunParent): string =>
  [run_id, node, item ?? '', attempt].join('/')

const sayingOf = (error: Problem): string => {
  const [first] =
    error instanceof InvalidInput
      ? (error.extensions['errors'] as { pointer: string; message: string }[])
      : []
  return first ? `${first.pointer} ${first.message}` : error.message
}

/** What a node, or an item, learns of the run that it has waited for. */
export type ChildEnd = { end: NodeEnd } | { failed: { code: string; message: string } }

/**
 * Gives a node, or an item, the output of its run, once. Rejects while that is open: its workflow ended without closing it. Throws
 * NotFound, `attempt_over`, `too_large`.
 */
export async function takeChildOutput(
  run_id: string,
  name: string,
  attempt: number,
  child: Pick<AiRunDocument, '_id' | 'tenant_id'>,
): Promise<ChildEnd> {
  const { tenant_id } = child
  const its = await AiRun.findOne({ _id: child._id, tenant_id }).lean()
  if (!its) return { failed: { code: 'workflow_failed', message: 'The workflow’s run no longer exists' } }
  if (its.open) throw new Error(`the workflow of the run ${its._id} ended without closing it`)
  if (its.status !== 'succeeded') {
    const message = its.error?.message ?? 'The workflow’s run was cancelled'
    return { failed: { code: 'workflow_failed', message } }
  }
  const run = await findRun({ _id: run_id, tenant_id })
  if (!run) throw new NotFound('run')
  const { deployment_id: id, workflow_id, version } = run
  const runner = { id, tenant_id, workflow_id, version }
  const { spec } = await versionOfRunner(runner)
  const named = stepNamed(spec.nodes, name)
  if (!named) throw new NotFound('node')
  const json = its.output ? await wholeOf(its, its.output, its.whole_output) : 'null'
  const { map, item } = named
  if (map !== null && item !== null) {
    needValue(json, runBounds.depth - 1) // the list is around it
    const value = await (await storeOfItems(its, run_id, map))(json)
    const end = { item, attempt, status: 'succeeded' as const }
    await transaction(() => writeEnds(runner, run_id, map, [end], new Map([[item, value]])), run_id)
    return { end: { status: 'succeeded', case: null } }
  }
  const node = { _id: runNodeId(run_id, name), tenant_id }
  const waiting = await AiRunNode.findOne(node).lean()
  if (!waiting) throw new NotFound('node')
  const value = await storeOutputOf(waiting, json)
  await transaction(async () => {
    const { matchedCount } = await AiRunNode.updateOne(
      { ...node, status: 'running' },
      { $set: { status: 'succeeded', ...outputFields(value), ended_at: new Date() } },
    )
    if (!matchedCount) return
    await needOpen(runner, run_id, { bytes: value.shown.bytes })
    await keepBoth(value)
  }, run_id)
  const record = await AiRunNode.findOne(node, { status: 1 }).lean()
  if (record?.status !== 'succeeded') throw over('The node has ended')
  return { end: { status: 'succeeded', case: null } }
}

/** Records that an item has failed. */
export async function failItem(
  { _id: run_id, tenant_id }: Pick<AiRunDocument, '_id' | 'tenant_id'>,
  map: string,
  item: number,
  error: { code: string; message: string },
): Promise<void> {
  const run = await findRun({ _id: run_id, tenant_id })
  if (!run?.open) return
  const { deployment_id: id, workflow_id, version } = run
  const runner = { id, tenant_id, workflow_id, version }
  await transaction(async () => {
    const record = await AiRunNode.findOne({ tenant_id, run_id, map, item }, { attempt: 1 }).lean()
    const end = { item, attempt: record?.attempt ?? null, status: 'failed' as const, error }
    await writeEnds(runner, run_id, map, [end], new Map())
  }, run_id)
}

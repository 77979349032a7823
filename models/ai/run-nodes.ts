import { evaluationBounds, runBounds } from '../../lib/ai/bounds.ts'
import { edgeOf } from '../../lib/ai/graph.ts'
import type { NodeSpec } from '../../lib/ai/node-kinds.ts'
import { type NodeResult, variablesJson } from '../../lib/ai/programs.ts'
import type { Plan } from '../../lib/ai/plan.ts'
import type { Redaction } from '../../lib/ai/redaction.ts'
import type { Spec } from '../../lib/ai/spec.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import { stepNamed } from '../../lib/ai/steps.ts'
import type { Begun, Ended, Given, NodeAnswer } from '../../lib/runner-protocol.ts'
import { transaction } from '../database.ts'
import { inputHashOf, reusableNode, reuseNode } from './node-reuse.ts'
import { AiRunNode, type AiRunNodeDocument, runNodeId } from './run-node-records.ts'
import { storeInTwo, type TwoValues } from './redacted-values.ts'
import {
  keyedHash,
  outputFields,
  redactionJson,
  redactionOfNode,
  storeOutputOf,
  wholeInputOf,
  wholeOf,
} from './run-redaction.ts'
import { keepValue, needValue, type StoredValue } from './run-values.ts'
import { AiRun, type AiRunDocument } from './runs.ts'
import { knownVersion, type ReadVersion } from './versions.ts'

// What a runner reads and writes of its runs. Each write is fenced by the run, which must be open, and by the attempt: a
// late attempt changes nothing.

/** Whose runs. */
export interface RunnerOf {
  /** The deployment's id. */
  id: string
  tenant_id: string
  workflow_id: string
  version: number
}

const ended = (status: AiRunNodeDocument['status']): boolean => status !== 'running'

/** The attempt is over: a later one has begun, or the node or its run has ended. */
export const over = (what: string): Problem => new Problem(409, 'attempt_over', 'The attempt is over', what)

/** Begins an attempt of a node, or of an item, which gets no values: its map has them. Throws NotFound, `attempt_over`. */
export async function beginNode(
  runner: RunnerOf,
  run_id: string,
  node: string,
  attempt: number,
): Promise<Begun> {
  const version = await versionOfRunner(runner)
  const { spec, plan } = version
  const named = stepNamed(spec.nodes, node)
  if (!named) throw new NotFound('node')
  const { map, item } = named
  const whole = map ?? node
  const run = await runOfRunner(runner, run_id)
  const redaction = redactionOfNode(run, plan, whole, spec.nodes[whole] as NodeSpec)
  // Items have the values of their map.
  const values = map === null ? valuesOf(run, version, node) : null
  // Without values it fails, once the attempt has begun.
  const input_sha256 = await (values?.then(
    async (they) => keyedHash(run, await inputHashOf(version, node, they), redaction),
    () => null,
  ) ?? null)
  const step = { node, ...(map !== null && item !== null ? { map, item } : {}) }
  const record = await transaction(
    () => beginStep(runner, run, { step, attempt, input_sha256, redaction, isHeld: false }),
    run_id,
  )
  return begunBy(run, record, attempt, values)
}

/** A node or an item that begins. */
interface Beginning {
  step: { node: string; map?: string; item?: number }
  attempt: number
  input_sha256: string | null
  /** Of its output, as `redactionOfNode` says. */
  redaction: Redaction | undefined
  /** The transaction holds the run already. */
  isHeld: boolean
}

/** Begins an attempt in a transaction, or takes over what a former run has left. Returns the record as it then is. */
export async function beginStep(
  runner: RunnerOf,
  run: Pick<AiRunDocument, '_id' | 'tenant_id' | 'former_runs'>,
  { step: { node, ...ofMap }, attempt, input_sha256, redaction, isHeld }: Beginning,
): Promise<AiRunNodeDocument | null> {
  const { _id: run_id, tenant_id } = run
  const _id = runNodeId(run_id, node)
  const fresh = { run_id, node, started_at: new Date(), ...ofMap }
  const known = { ...(input_sha256 === null ? {} : { input_sha256 }), ...redactionJson(redaction) }
  // Without former runs, the first attempt begins the node unless it is there.
  if (isHeld && attempt === 1 && !run.former_runs?.length)
    return AiRunNode.findOneAndUpdate(
      { _id, tenant_id },
      { $setOnInsert: { ...fresh, ...known, status: 'running', attempt } },
      { upsert: true, returnDocument: 'after' },
    ).lean()
  const found = await AiRunNode.findOne({ _id, tenant_id }).lean()
  const former = found || input_sha256 === null ? null : await reusableNode(run, node, input_sha256)
  if (former || !isHeld) await needOpen(runner, run_id, countedBy(former?.output ?? null))
  if (former) return reuseNode(run, former)
  if (found && (ended(found.status) || (found.attempt ?? 0) > attempt)) return found
  return AiRunNode.findOneAndUpdate(
    { _id, tenant_id },
    { $set: { status: 'running', attempt, ...known }, $setOnInsert: fresh },
    { upsert: true, returnDocument: 'after' },
  ).lean()
}

/** What the attempt gets, or learns of an earlier one. Throws `attempt_over`, and what `values` throws. */
export async function begunBy(
  run: Pick<AiRunDocument, 'former_runs'>,
  record: AiRunNodeDocument | null,
  attempt: number,
  values: Promise<Given> | Given | null,
): Promise<Begun> {
  if (record && ['succeeded', 'skipped', 'waiting'].includes(record.status)) {
    const status = record.status as NodeAnswer['status']
    return { done: { status, case: record.case }, given: '{}', nodes: {} }
  }
  if (record?.status !== 'running' || record.attempt !== attempt) throw over('Another attempt has begun')
  const retries = run.former_runs?.length ? { retries: true } : {}
  return { done: null, ...((await values) ?? { given: '{}', nodes: {} }), ...retries }
}

/** What the expressions of a node see. A merge sees all that it needs. */
export function valuesOf(
  run: AiRunDocument,
  { spec, plan }: { spec: Spec; plan: Plan },
  node: string,
  ending?: Ending,
): Promise<Given> {
  const its = spec.nodes[node]
  const needs = its?.kind === 'merge' ? (its.needs ?? []).map((need) => edgeOf(need).from) : []
  return given(run, spec, [...(plan.nodes[node]?.uses ?? []), ...needs], ending)
}

/** What the expressions of a node see. Throws NotFound, `attempt_over`. */
export async function givenForNode(runner: RunnerOf, run_id: string, node: string): Promise<Given> {
  const version = await versionOfRunner(runner)
  if (!Object.hasOwn(version.spec.nodes, node)) throw new NotFound('node')
  return valuesOf(await needOpenRun(runner, run_id), version, node)
}

/** What the expressions of the run's output see. Throws NotFound, `attempt_over`. */
export async function givenForOutput(runner: RunnerOf, run_id: string): Promise<Given> {
  const { spec, plan } = await versionOfRunner(runner)
  return given(await needOpenRun(runner, run_id), spec, plan.output.uses)
}

/** Records how a node has ended. Repeated, it changes nothing. Throws NotFound, `attempt_over`, and as `needValue`. */
export async function endNode(
  runner: RunnerOf,
  run_id: string,
  node: string,
  attempt: number,
  end: Extract<Ended, { status: 'succeeded' | 'skipped' }>,
): Promise<void> {
  const { tenant_id } = runner
  const _id = runNodeId(run_id, node)
  const record = await AiRunNode.findOne({ _id, tenant_id, run_id }).lean()
  if (!record) throw new NotFound('node')
  if (isDone(record, attempt)) return
  const output = end.status === 'succeeded' ? await valueOf(record, end.output) : null
  const chosen = end.status === 'succeeded' ? end.case : null
  await transaction(async () => {
    await needOpen(runner, run_id, countedBy(output?.shown ?? null))
    const { matchedCount } = await AiRunNode.updateOne(
      { _id, tenant_id, status: 'running', attempt },
      {
        $set: {
          status: end.status,
          case: chosen,
          ...(output ? outputFields(output) : { output: null }),
          ended_at: new Date(),
        },
      },
    )
    if (!matchedCount) throw over('Another attempt has begun, or the node has ended')
    await keepBoth(output)
  }, run_id)
}

export const isDone = (record: AiRunNodeDocument, attempt: number): boolean =>
  record.attempt === attempt && (record.status === 'succeeded' || record.status === 'skipped')

/** Call in the transaction that adds the values to a record. */
export async function keepBoth(value: TwoValues | null): Promise<void> {
  await keepValue(value?.shown)
  await keepValue(value?.whole)
}

/** Records the run's output. Repeated, it changes nothing. Throws NotFound, `attempt_over`, and as `needValue`. */
export async function giveOutput(runner: RunnerOf, run_id: string, json: string): Promise<void> {
  const run = await runOfRunner(runner, run_id)
  if (run.output) return
  needValue(json)
  const output = await storeRunOutput(run, await versionOfRunner(runner), json)
  const { shown, whole } = output
  const isInline = !shown.blob && !whole?.blob
  // A small output needs no transaction.
  if (isInline && (await giveWithRoom(runner, run_id, output))) return
  await transaction(async () => {
    if (await giveWithRoom(runner, run_id, output)) return
    const { output: before } = await runOfRunner(runner, run_id)
    if (!before) await needOpen(runner, run_id, countedBy(shown))
  }, run_id)
}

/** Stores a run's output, not kept yet (see storeValue). */
export const storeRunOutput = (run: AiRunDocument, { plan }: ReadVersion, json: string): Promise<TwoValues> =>
  storeInTwo(
    run,
    json,
    run.redacts === 'some' ? (plan.redacted?.output ?? null) : run.redacts === 'all' || null,
  )

/** Gives an open run its output; of blobs, call it in a transaction. False: the run has one, or has no room for it. */
export async function giveWithRoom(runner: RunnerOf, _id: string, output: TwoValues): Promise<boolean> {
  const { shown, whole } = output
  const { matchedCount } = await AiRun.updateOne(
    { ...openWithRoom(runner, _id, shown.bytes), output: null },
    {
      $set: { output: shown, ...(whole ? { whole_output: whole } : {}) },
      $inc: { output_bytes: shown.bytes },
    },
  )
  if (matchedCount > 0) await keepBoth(output)
  return matchedCount > 0
}

export function valueOf(record: AiRunNodeDocument, json: string): Promise<TwoValues> {
  needValue(json)
  return storeOutputOf(record, json)
}

export const countedBy = (value: StoredValue | null) => (value ? { bytes: value.bytes } : {})

/**
 * Holds the run until the transaction ends: it is open then, and its outputs have room for so much. Throws NotFound,
 * `attempt_over`, `too_large`.
 */
export async function needOpen(
  runner: RunnerOf,
  _id: string,
  { bytes = 0 }: { bytes?: number },
): Promise<HeldRun> {
  const held = await AiRun.findOneAndUpdate(
    openWithRoom(runner, _id, bytes),
    { $inc: { output_bytes: bytes } },
    { returnDocument: 'after', projection: { cancel_requested_at: 1, started_at: 1 } },
  ).lean()
  if (held) return held
  const run = await runOfRunner(runner, _id)
  if (!run.open) throw over('The run has ended')
  throw new Problem(
    422,
    'too_large',
    'The outputs of the run are too large',
    `They have more than ${runBounds.allBytes / 1024 ** 2} MiB together`,
  )
}

const openWithRoom = ({ tenant_id, id: deployment_id }: RunnerOf, _id: string, bytes: number) => ({
  _id,
  tenant_id,
  deployment_id,
  open: true as const,
  output_bytes: { $lte: runBounds.allBytes - bytes },
})

type HeldRun = Pick<AiRunDocument, 'cancel_requested_at' | 'started_at'>

/** A run that has not ended: of those that have, a runner reads nothing any more. Throws NotFound, `attempt_over`. */
export async function needOpenRun(runner: RunnerOf, _id: string): Promise<AiRunDocument> {
  const run = await runOfRunner(runner, _id)
  if (!run.open) throw over('The run has ended')
  return run
}

export async function runOfRunner({ id, tenant_id }: RunnerOf, _id: string): Promise<AiRunDocument> {
  const run = await AiRun.findOne({ _id, tenant_id, deployment_id: id }).lean()
  if (!run) throw new NotFound('run')
  return run
}

/** What a runner carries out. */
export const versionOfRunner = ({ tenant_id, workflow_id, version }: RunnerOf): Promise<ReadVersion> =>
  knownVersion({ _id: workflow_id, tenant_id }, version)

/** A node whose success is about to be recorded. */
export type Ending = Pick<AiRunNodeDocument, 'node' | 'status' | 'case' | 'output' | 'whole' | 'error'>

/** What expressions that name these nodes see. */
export async function given(
  run: AiRunDocument,
  spec: Spec,
  names: string[],
  ending?: Ending,
): Promise<Given> {
  const { _id: run_id, tenant_id } = run
  const wanted = [...new Set(names)]
  const others = wanted.filter((name) => name !== ending?.node).map((name) => runNodeId(run_id, name))
  const found = others.length > 0 ? await AiRunNode.find({ _id: { $in: others }, tenant_id }).lean() : []
  const records: Ending[] = ending && wanted.includes(ending.node) ? [...found, ending] : found
  const bytes = records.map(({ output }) => output?.bytes ?? 0).reduce((sum, one) => sum + one, 0)
  if (bytes > evaluationBounds.inputBytes)
    throw new Problem(422, 'too_large', 'The values that the expressions name are too large')
  const byName = new Map(records.map((record) => [record.node, record]))
  const nodes: Given['nodes'] = {}
  const results: Record<string, NodeResult> = {}
  for (const name of wanted) {
    const result = await resultOf(run, byName.get(name), spec.nodes[name])
    results[name] = result
    const isChosen = byName.get(name)?.status === 'succeeded'
    nodes[name] = { status: result.status, case: caseOf(result, isChosen ? byName.get(name) : undefined) }
  }
  return { given: variablesJson(await wholeInputOf(run), results), nodes }
}

/** What a switch chose, or its `on_error` chose for it. */
function caseOf(result: NodeResult, record: Ending | undefined): string | null {
  if (record) return record.case
  if (result.status !== 'succeeded') return null
  const value: unknown = JSON.parse(result.output)
  return typeof value === 'string' ? value : null
}

/** As expressions see it: a failure with `{"value": …}` is a success with that output. */
async function resultOf(
  run: AiRunDocument,
  record: Ending | undefined,
  node: NodeSpec | undefined,
): Promise<NodeResult> {
  if (record?.status === 'succeeded' && record.output)
    return { status: 'succeeded', output: await wholeOf(run, record.output, record.whole) }
  if (record?.status !== 'failed') return { status: 'skipped' }
  const handling = node?.on_error
  if (typeof handling === 'object' && 'value' in handling)
    return { status: 'succeeded', output: JSON.stringify(handling.value) }
  return { status: 'failed', error: record.error ?? { code: 'internal', message: '' } }
}

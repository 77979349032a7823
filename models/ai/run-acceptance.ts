import { isDeeperThan, runBounds } from '../../lib/ai/bounds.ts'
import { bucketOf } from '../../lib/ai/canary.ts'
import { ExpressionPool, NoValue } from '../../lib/ai/expression-pool.ts'
import { newId } from '../../lib/ids.ts'
import { InvalidInput, NotFound, Problem } from '../../lib/problem.ts'
import { makeQueue } from '../../lib/queue.ts'
import type { By } from '../acceptance.ts'
import { transaction } from '../database.ts'
import { needRoomForWork } from '../store-room.ts'
import { AiWorkflow, type AiWorkflowDocument, aiWorkflowOf, title } from './ai-workflows.ts'
import type { AiDeploymentDocument } from './deployments.ts'
import { newInput } from './run-redaction.ts'
import { isSame, type Routes, routesOf } from './run-routes.ts'
import { type AiRunDocument, insertRun, type RunTrigger } from './runs.ts'
import { knownVersion, type ReadVersion } from './versions.ts'

export interface NewAiRun {
  /** Any JSON, which fits the version's `input_schema`. */
  input: unknown
  /** Runs with the same key go to the same deployment. Null: the run's id. */
  canary_key: string | null
  /** By default a request. */
  trigger?: RunTrigger
  /** It becomes a part of another run. */
  called?: Called
  /** Of a retry: see AiRunDocument. */
  former_runs?: string[]
  /** Nothing of its values is shown. */
  redactsAll?: boolean
}

interface Called {
  /** Null: the deployed one. */
  version: number | null
  /** Called in the transaction that accepts the run. Returns the run, if it has been accepted before. */
  hold: () => Promise<AiRunDocument | null>
  fields: Required<Pick<AiRunDocument, 'parent' | 'parent_key' | 'depth'>>
}

/**
 * Accepts a run, and chooses which deployment takes it: for good, whatever changes later. It contends with the workflow's deletion,
 * with undeployment and with changes of the canary: each writes the workflow. Throws NotFound, InvalidInput, StoreFull,
 * `not_deployed`, `too_many_runs`.
 */
export async function acceptAiRun(
  { tenant_id, id: requested_by }: By,
  workflow_id: string,
  { input, canary_key, trigger = 'manual', called, former_runs, redactsAll }: NewAiRun,
): Promise<AiRunDocument> {
  if (!called) needRoomForWork()
  const workflow = await aiWorkflowOf({ tenant_id }, workflow_id)
  const _id = newId()
  const bucket = bucketOf(workflow_id, canary_key ?? _id)
  for (;;) {
    const routes = await routesOf(workflow, bucket, called?.version)
    const { to, version, input_json } = await firstThatFits(workflow, routes, input)
    const its = await newInput(version, input_json, {
      redactsAll: redactsAll ?? false,
      former_runs: former_runs ?? [],
    })
    const accepted = await transaction(async () => {
      const before = await called?.hold()
      if (before) return before
      await countOpenRun(tenant_id, workflow_id)
      if (!isSame(routes, await routesOf(workflow, bucket, called?.version))) throw new RoutesChanged()
      await its.keep({ _id, tenant_id })
      return insertRun({
        _id,
        tenant_id,
        workflow_id,
        deployment_id: to._id,
        version: version.version,
        spec_sha256: version.spec_sha256,
        trigger,
        canary_key,
        bucket,
        requested_by,
        ...its.fields,
        ...(former_runs ? { former_runs } : {}),
        ...called?.fields,
      })
    }, workflow_id).catch((error: unknown) => {
      if (error instanceof RoutesChanged) return null
      throw error
    })
    if (accepted) return accepted
  }
}

/** Counts one more open run, and holds the workflow until the transaction ends. Throws NotFound, `too_many_runs`. */
export async function countOpenRun(tenant_id: string, workflow_id: string): Promise<void> {
  const held = await AiWorkflow.findOneAndUpdate(
    { _id: workflow_id, tenant_id },
    { $inc: { runs_open: 1 } },
    { timestamps: false, returnDocument: 'after', projection: { runs_open: 1 } },
  ).lean()
  if (!held) throw new NotFound(title)
  if (held.runs_open > runBounds.open)
    throw new Problem(
      409,
      'too_many_runs',
      'The workflow has too many open runs',
      `At most ${runBounds.open} runs can be open`,
    )
}

/** While the input was checked, a canary came, went, was promoted, or took another weight. The transaction is rolled back. */
class RoutesChanged extends Error {}

/** The first of these deployments whose version takes the input. Throws InvalidInput, as the last one says. */
async function firstThatFits(
  workflow: AiWorkflowDocument,
  [first, ...others]: Routes,
  input: unknown,
): Promise<{ to: AiDeploymentDocument; version: ReadVersion; input_json: string }> {
  try {
    const version = await knownVersion(workflow, first.version)
    return { to: first, version, input_json: await checkedInput(version, input) }
  } catch (error) {
    const [next, ...rest] = others
    if (!next || !(error instanceof InvalidInput)) throw error
    return firstThatFits(workflow, [next, ...rest], input)
  }
}

// A small schema can take long, so inputs are checked in processes of their own. Tenants take turns.
const checksAtOnce = 2
const checks = new ExpressionPool(checksAtOnce)
const inTurn = makeQueue(checksAtOnce)

/** The input's JSON. Throws InvalidInput. */
export async function checkedInput({ _id, tenant_id, spec }: ReadVersion, input: unknown): Promise<string> {
  const json = JSON.stringify(input)
  if (Buffer.byteLength(json) > runBounds.inputBytes || isDeeperThan(input, runBounds.depth))
    throw invalid('', `has more than 1 MiB, or more than ${runBounds.depth} levels`)
  const check = { key: `input ${_id}`, schema: spec.input_schema, given: json }
  const fault = await inTurn(() => checks.check(check), undefined, tenant_id).catch((error: unknown) => {
    if (error instanceof NoValue) throw invalid('', `cannot be checked: ${error.message}`)
    throw error
  })
  if (fault) throw invalid(fault.pointer, fault.message)
  return json
}

const invalid = (pointer: string, message: string): InvalidInput =>
  new InvalidInput(422, [{ pointer: `/input${pointer}`, message }])

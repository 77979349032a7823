import { isDeeperThan, runBounds } from '../../lib/ai/bounds.ts'
import { bucketOf } from '../../lib/ai/canary.ts'
import { ExpressionPool, NoValue } from '../../lib/ai/expression-pool.ts'
import { newId } from '../../lib/ids.ts'
import { InvalidInput, NotFound, Problem } from '../../lib/problem.ts'
import { makeQueue } from '../../lib/queue.ts'
import type { By } from '../acceptance.ts'
import { transaction } from '../database.ts'
import { AiWorkflow, aiWorkflowOf, title } from './ai-workflows.ts'
import { AiDeployment, deploymentOf } from './deployments.ts'
import { type AiRunDocument, insertRun, type RunTrigger } from './runs.ts'
import { type AiWorkflowVersionDocument, specOf, versionNumbered } from './versions.ts'

export interface NewAiRun {
  /** Any JSON, which fits the version's `input_schema`. */
  input: unknown
  /** Runs with the same key go to the same deployment. Null: the run's id. */
  canary_key: string | null
  /** By default a request. */
  trigger?: RunTrigger
  /** Of a retry: see AiRunDocument. */
  former_runs?: string[]
}

const notDeployed = (status: string | null): Problem =>
  new Problem(
    409,
    'not_deployed',
    'The workflow is not deployed',
    status === null ? 'Deploy a version first' : `Its deployment is ${status}`,
  )

/**
 * Accepts a run of the deployed version. It contends with the workflow's deletion and with undeployment: each writes the
 * workflow. Throws NotFound, InvalidInput, `not_deployed`, `too_many_runs`.
 */
export async function acceptAiRun(
  { tenant_id, id: requested_by }: By,
  workflow_id: string,
  { input, canary_key, trigger = 'manual', former_runs }: NewAiRun,
): Promise<AiRunDocument> {
  const workflow = await aiWorkflowOf({ tenant_id }, workflow_id)
  const deployment = await deploymentOf(tenant_id, workflow_id)
  if (deployment?.status !== 'ready') throw notDeployed(deployment?.status ?? null)
  const version = await versionNumbered(workflow, deployment.version)
  const input_json = await checkedInput(version, input)
  return transaction(async () => {
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
        `At most ${runBounds.open}`,
      )
    const its = { _id: deployment._id, tenant_id, status: 'ready' as const }
    if (!(await AiDeployment.exists(its))) throw notDeployed(null)
    const _id = newId()
    return insertRun({
      _id,
      tenant_id,
      workflow_id,
      deployment_id: deployment._id,
      version: version.version,
      spec_sha256: version.spec_sha256,
      trigger,
      canary_key,
      bucket: bucketOf(workflow_id, canary_key ?? _id),
      requested_by,
      ...(former_runs ? { former_runs } : {}),
      input_json,
    })
  }, workflow_id)
}

// A small schema can take long, so inputs are checked in processes of their own. Tenants take turns.
const checksAtOnce = 2
const checks = new ExpressionPool(checksAtOnce)
const inTurn = makeQueue(checksAtOnce)

/** The input's JSON. Throws InvalidInput. */
async function checkedInput(version: AiWorkflowVersionDocument, input: unknown): Promise<string> {
  const json = JSON.stringify(input)
  if (Buffer.byteLength(json) > runBounds.inputBytes || isDeeperThan(input, runBounds.depth))
    throw invalid('', `has more than 1 MiB, or more than ${runBounds.depth} levels`)
  const { input_schema } = specOf(version)
  const schema = input_schema as Record<string, unknown>
  const check = { key: `input ${version._id}`, schema, given: json }
  const fault = await inTurn(() => checks.check(check), undefined, version.tenant_id).catch(
    (error: unknown) => {
      if (error instanceof NoValue) throw invalid('', `cannot be checked: ${error.message}`)
      throw error
    },
  )
  if (fault) throw invalid(fault.pointer, fault.message)
  return json
}

const invalid = (pointer: string, message: string): InvalidInput =>
  new InvalidInput(422, [{ pointer: `/input${pointer}`, message }])

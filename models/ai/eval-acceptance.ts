import { evalBounds } from '../../lib/ai/bounds.ts'
import type { FrozenCase } from '../../lib/ai/eval-results.ts'
import { newId } from '../../lib/ids.ts'
import { Problem } from '../../lib/problem.ts'
import { type By, create } from '../acceptance.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { lockAiWorkflow } from './ai-workflows.ts'
import { type AiDeploymentDocument, deploymentOf, notDeployed } from './deployments.ts'
import { AiEvalCase, assertionOf, inputOf } from './eval-cases.ts'
import {
  AiEvalCases,
  type AiEvalDocument,
  aiEvalResource,
  type EvalTarget,
  needNoEval,
  removeEvals,
} from './evals.ts'

/**
 * Accepts a run of all eval cases of a workflow on one of its deployments. Throws NotFound, `no_eval_cases`, `too_many_runs`,
 * `not_deployed`, `no_canary`, and OperationInProgress while others of the workflow run.
 */
export const acceptAiEval = (
  by: By,
  workflow_id: string,
  role: EvalTarget,
): Promise<Accepted<AiEvalDocument>> => {
  const { tenant_id } = by
  return transaction(async () => {
    // Contends with changes of the cases, and with undeployment.
    const workflow = await lockAiWorkflow({ tenant_id }, workflow_id)
    const deployment = await deploymentAs(tenant_id, workflow_id, role)
    const cases = await casesOf(tenant_id, workflow_id)
    const runs = cases.reduce((sum, { repeats }) => sum + repeats, 0)
    const case_set_sha256 = workflow.case_set_sha256
    if (runs === 0 || case_set_sha256 === null)
      throw new Problem(409, 'no_eval_cases', 'The workflow has no eval cases', 'Create one first')
    if (runs > evalBounds.runs)
      throw new Problem(
        409,
        'too_many_runs',
        'The eval cases have too many repeats',
        `They have ${runs} together, and may have at most ${evalBounds.runs}`,
      )
    await needNoEval(tenant_id, workflow_id)
    await removeEvals({ tenant_id, workflow_id }, evalBounds.kept - 1)
    const _id = newId()
    await new AiEvalCases({ _id, tenant_id, cases_json: JSON.stringify(cases) }).save()
    return create(by, aiEvalResource, {
      id: _id,
      fields: {
        name: `${workflow.name}-${_id.slice(-12)}`,
        tags: {},
        workflow_id,
        role,
        deployment_id: deployment._id,
        version: deployment.version,
        spec_sha256: deployment.spec_sha256,
        case_set_sha256,
        latest_version: workflow.latest_version,
        requested_by: by.id,
        runs,
        runs_begun: 0,
        runs_ended: 0,
        tokens: 0,
        cost_nano_usd: 0,
        ended_at: null,
        verdict: null,
        result_json: null,
        compared_json: null,
      },
    })
  }, workflow_id)
}

/** The workflow's deployment in this role, which must be ready. Throws `not_deployed`, `no_canary`. */
async function deploymentAs(
  tenant_id: string,
  workflow_id: string,
  role: EvalTarget,
): Promise<AiDeploymentDocument> {
  const found = await deploymentOf(tenant_id, workflow_id, role)
  if (!found && role === 'canary')
    throw new Problem(409, 'no_canary', 'The workflow has no canary', 'Run the evals on the primary')
  if (found?.status !== 'ready') throw notDeployed(found?.status ?? null)
  return found
}

async function casesOf(tenant_id: string, workflow_id: string): Promise<FrozenCase[]> {
  const all = await AiEvalCase.find({ tenant_id, workflow_id }).sort({ name: 1 }).lean()
  return all.map((one) => ({
    id: one._id,
    name: one.name,
    input: inputOf(one),
    assertion: assertionOf(one),
    repeats: one.repeats,
    min_pass: one.min_pass,
  }))
}

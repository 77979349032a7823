import { Problem } from '../../lib/problem.ts'
import type { AiWorkflowDocument } from './ai-workflows.ts'
import type { AiDeploymentDocument } from './deployments.ts'
import { type AiEvalDocument, newestResult } from './evals.ts'

// The gate before a canary's promotion.

type Deployment = Pick<AiDeploymentDocument, '_id' | 'spec_sha256'>

/**
 * Throws `evals_not_passed` unless the workflow does not require it, or the newest result of its present eval cases on this
 * deployment is `passed`. Call after a write to the workflow, in the transaction that promotes the deployment: cases and
 * versions change by such writes, too.
 */
export async function needEvalPass(workflow: AiWorkflowDocument, deployment: Deployment): Promise<void> {
  if (!workflow.require_eval_pass) return
  const { _id: workflow_id, tenant_id, case_set_sha256 } = workflow
  const of = { tenant_id, workflow_id }
  const { _id: deployment_id, spec_sha256 } = deployment
  const here = { deployment_id, spec_sha256 }
  const newest =
    case_set_sha256 === null
      ? null
      : ((await newestResult(of, { ...here, case_set_sha256 })) ?? (await newestResult(of, here)))
  const lack = lackOf(workflow, newest)
  if (lack !== null) throw new EvalsNotPassed(lack, newest)
}

const lacks = {
  no_cases: 'The workflow has no eval cases',
  not_run: 'The eval cases were not run on this deployment',
  cases_changed: 'The eval cases have changed since they were run on this deployment',
  published_since: 'A version was published since the eval cases were run on this deployment',
  failed: 'The eval cases have failed on this deployment',
  inconclusive: 'Some eval cases have an error on this deployment',
}
export type EvalLack = keyof typeof lacks

/** What lacks; null: nothing. `newest`: the result on the deployment, of the present cases if there is one. */
export function lackOf(
  { case_set_sha256, latest_version }: Pick<AiWorkflowDocument, 'case_set_sha256' | 'latest_version'>,
  newest: Pick<AiEvalDocument, 'case_set_sha256' | 'latest_version' | 'verdict'> | null,
): EvalLack | null {
  if (case_set_sha256 === null) return 'no_cases'
  if (!newest?.verdict) return 'not_run'
  if (newest.case_set_sha256 !== case_set_sha256) return 'cases_changed'
  if (newest.latest_version !== latest_version) return 'published_since'
  return newest.verdict === 'passed' ? null : newest.verdict
}

export class EvalsNotPassed extends Problem {
  constructor(lack: EvalLack, newest: Pick<AiEvalDocument, '_id'> | null) {
    super(
      409,
      'evals_not_passed',
      'The evals have not passed',
      `${lacks[lack]}: the canary can be promoted once its eval cases have passed`,
      {
        extensions: { lack, eval_id: newest?._id ?? null },
      },
    )
  }
}

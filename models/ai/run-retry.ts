import { StateConflict } from '../../lib/problem.ts'
import type { By } from '../acceptance.ts'
import { acceptAiRun } from './run-acceptance.ts'
import { wholeInputOf } from './run-redaction.ts'
import { type AiRunDocument, runOf } from './runs.ts'

/** How many runs before a retry it takes outputs from. */
const mostFormer = 20

/**
 * Accepts a run with the input of one that failed or was cancelled, on the workflow's deployment of now. Throws StateConflict if
 * that one is open or succeeded, and as acceptAiRun.
 */
export async function acceptRetry(by: By, workflow_id: string, run_id: string): Promise<AiRunDocument> {
  const former = await runOf(by.tenant_id, workflow_id, run_id)
  const { _id, open, status, canary_key, redacts, former_runs = [] } = former
  if (open || status === 'succeeded') throw new StateConflict('retry the run', status)
  return acceptAiRun(by, workflow_id, {
    input: JSON.parse(await wholeInputOf(former)),
    canary_key,
    trigger: 'retry',
    redactsAll: redacts === 'all',
    former_runs: [_id, ...former_runs].slice(0, mostFormer),
  })
}

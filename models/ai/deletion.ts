import { transaction } from '../database.ts'
import { AiWorkflow, atRevisions, refusalOf } from './ai-workflows.ts'
import { needUndeployed } from './deployments.ts'
import { AiEvalCase } from './eval-cases.ts'
import { needNoEval, removeEvals } from './evals.ts'
import { leaveRuns } from './run-removal.ts'
import { AiSchedule } from './run-schedules.ts'
import { RunsInFlight } from './runs.ts'
import { needUncalled } from './uses.ts'
import { AiWorkflowVersion } from './versions.ts'
import { AiWebhook } from './webhooks.ts'

/**
 * Deletes a workflow with its versions, eval cases, their results, webhook and schedule; its runs are removed later. Open runs and
 * its deployment keep it, and so do workflows that call it, unless `force`. `revisions`: those that may be deleted; null: any.
 * Throws NotFound, RevisionDiffers, RunsInFlight, WorkflowDeployed, InUse, and OperationInProgress while its eval cases run.
 */
export const deleteAiWorkflow = (
  { tenant_id }: { tenant_id: string },
  _id: string,
  revisions: number[] | null,
  { force }: { force: boolean },
): Promise<void> =>
  transaction(async () => {
    const gone = await AiWorkflow.findOneAndDelete({ _id, tenant_id, ...atRevisions(revisions) }).lean()
    if (!gone) throw await refusalOf(tenant_id, _id)
    // The acceptance of a run writes the workflow, too: one of the two comes first.
    if (gone.runs_open > 0) throw new RunsInFlight(gone.runs_open)
    if (!force) await needUncalled(gone)
    await needUndeployed(tenant_id, _id)
    await needNoEval(tenant_id, _id)
    await leaveRuns(gone)
    await AiWorkflowVersion.deleteMany({ tenant_id, workflow_id: _id })
    await AiEvalCase.deleteMany({ tenant_id, workflow_id: _id })
    await removeEvals({ tenant_id, workflow_id: _id }, 0)
    await AiWebhook.deleteOne({ _id, tenant_id })
    await AiSchedule.deleteOne({ _id, tenant_id })
  }, _id)

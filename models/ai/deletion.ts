import { transaction } from '../database.ts'
import { AiWorkflow, atRevisions, refuse } from './ai-workflows.ts'
import { needUndeployed } from './deployments.ts'
import { AiEvalCase } from './eval-cases.ts'
import { needUncalled } from './uses.ts'
import { AiWorkflowVersion } from './versions.ts'
import { AiWebhook } from './webhooks.ts'

/**
 * Deletes a workflow with its versions, eval cases and webhook. Its deployment keeps it, and so do workflows that call it,
 * unless `force`. `revisions`: those that may be deleted; null: any. Throws NotFound, RevisionDiffers, WorkflowDeployed, InUse.
 */
export const deleteAiWorkflow = (
  { tenant_id }: { tenant_id: string },
  _id: string,
  revisions: number[] | null,
  { force }: { force: boolean },
): Promise<void> =>
  transaction(async () => {
    const gone = await AiWorkflow.findOneAndDelete({ _id, tenant_id, ...atRevisions(revisions) }).lean()
    if (!gone) await refuse(tenant_id, _id)
    else if (!force) await needUncalled(gone)
    await needUndeployed(tenant_id, _id)
    await AiWorkflowVersion.deleteMany({ tenant_id, workflow_id: _id })
    await AiEvalCase.deleteMany({ tenant_id, workflow_id: _id })
    await AiWebhook.deleteOne({ _id, tenant_id })
  }, _id)

import { mark } from '../../lib/ai/redaction.ts'
import { metrics } from '../../lib/metrics.ts'
import { afterCommit, transaction } from '../database.ts'
import { closeLedger } from '../llm/ledgers.ts'
import { everyTenant } from '../tenant-scope.ts'
import { AiWorkflow } from './ai-workflows.ts'
import { AiRunNode, openNodeStates } from './run-node-records.ts'
import { AiRun, type AiRunDocument, type RunError, type RunSummary, withoutInput } from './runs.ts'

// The end of a run: by its workflow, with its deployment, or with its last node.

export type RunEnding =
  | { status: 'succeeded' }
  | { status: 'failed'; error: RunError }
  | { status: 'cancelled' }

/**
 * Ends a run, once: who comes second changes nothing. What still runs of it counts as cancelled. Returns the run if it was open.
 */
export async function endRun(
  { _id, workflow_id }: Pick<AiRunDocument, '_id' | 'workflow_id'>,
  end: RunEnding,
): Promise<RunSummary | null> {
  return transaction(async () => {
    const ended_at = new Date()
    const { status } = end
    const error = end.status === 'failed' ? await shownError(_id, end.error) : null
    const ended = await AiRun.findOneAndUpdate(
      { _id, open: true },
      { $set: { status, error, ended_at }, $unset: { open: 1, undispatched: 1 } },
      { projection: withoutInput },
    )
      .setOptions(everyTenant)
      .lean()
    if (!ended) return null
    const { tenant_id } = ended
    await AiWorkflow.updateOne(
      { _id: workflow_id, tenant_id },
      { $inc: { runs_open: -1 } },
      { timestamps: false },
    )
    const running = { tenant_id, run_id: _id, status: { $in: [...openNodeStates] } }
    await AiRunNode.updateMany(running, { $set: { status: 'cancelled', ended_at } })
    // The dispatcher cancels its parts, if its workflow does not.
    if (ended.children)
      await AiRun.updateMany(
        {
          tenant_id,
          'parent.run_id': _id,
          parent_key: { $exists: true },
          open: true,
          cancel_requested_at: null,
        },
        { $set: { cancel_requested_at: ended_at } },
      )
    await closeLedger(tenant_id, { kind: 'run', id: _id }) // no call of a model comes after it
    const tookSec = (ended_at.getTime() - ended.created_at.getTime()) / 1000
    afterCommit(() => metrics.aiRunsEnded.observe({ trigger: ended.trigger, status }, tookSec))
    return ended
  }, workflow_id)
}

/** What a node of a run that redacts everything says may quote its values. */
async function shownError(_id: string, error: RunError): Promise<RunError> {
  const redactsAll = await AiRun.exists({ _id, redacts: 'all' }).setOptions(everyTenant)
  const quotes = error.node !== null || error.code.startsWith('expression_')
  return redactsAll && quotes ? { ...error, message: mark } : error
}

import { ApplicationFailure } from '@temporalio/activity'
import type { Client } from '@temporalio/client'
import { runWorkflowId } from '../../lib/operation-workflows.ts'
import { Problem } from '../../lib/problem.ts'
import { type ChildEnd, failItem, takeChildOutput } from '../../models/ai/child-runs.ts'
import { lookAtDecision, type Waiting } from '../../models/ai/decisions.ts'
import { gatherItems } from '../../models/ai/run-items.ts'
import { endModelCalls } from '../../models/ai/run-models.ts'
import { findRun, requestRunCancel } from '../../models/ai/runs.ts'
import { cancelOperation } from '../../workflows/starters.ts'
import { permanently } from '../failures.ts'
import type { RunToCarryOut } from './runs.ts'

type Run = RunToCarryOut['run']
type Child = Pick<Run, '_id' | 'tenant_id'>

/** What a run's workflow waits for: short reads and writes of MongoDB. */
export const makeAiWaitActivities = ({ client }: { client: Client }) => ({
  lookAtAiDecision: (run: Run, node: string): Promise<Waiting> =>
    permanently(() => lookAtDecision(run, node)),

  /** Cancels a run that is a part of another one. Does nothing if it has ended. */
  async cancelAiChild({ _id, tenant_id, workflow_id }: Run): Promise<void> {
    try {
      await endModelCalls(await requestRunCancel(tenant_id, workflow_id, _id))
      await cancelOperation(client, runWorkflowId(_id))
    } catch (error) {
      if (!(error instanceof Problem)) throw error
    }
  },

  /** Whether a run that is a part of another one has ended. */
  hasAiChildEnded: async (child: Child): Promise<boolean> => !(await findRun(child))?.open,

  failAiItem: (
    run: Run,
    map: string,
    item: number,
    error: { code: string; message: string },
  ): Promise<void> => permanently(() => failItem(run, map, item, error)),
})

export type AiWaitActivities = ReturnType<typeof makeAiWaitActivities>

/** What takes longer: values of megabytes. */
export const makeAiValueActivities = () => ({
  takeAiChildOutput: (run: Run, node: string, attempt: number, child: Child): Promise<ChildEnd> =>
    permanently(() => takeChildOutput(run._id, node, attempt, child)),

  /** Ends a map whose items are all done. */
  async gatherAiItems(run: Run, node: string, all: number): Promise<void> {
    const its = await findRun(run)
    if (!its) throw ApplicationFailure.nonRetryable('The run is gone', 'not_found')
    const { deployment_id: id, tenant_id, workflow_id, version } = its
    const runner = { id, tenant_id, workflow_id, version }
    await permanently(() => gatherItems(runner, run._id, node, { all, attempt: null }))
  },
})

export type AiValueActivities = ReturnType<typeof makeAiValueActivities>

import { proxyActivities, sleep } from '@temporalio/workflow'
import type { AiEvalActivities } from '../../activities/ai/evals.ts'
import { durable } from '../durable.ts'

const { advanceAiEval, concludeAiEval, stopAiEval } = proxyActivities<AiEvalActivities>({
  startToCloseTimeout: '30 minutes', // a round of 20 s, and the answers of judges that it has asked
  heartbeatTimeout: '10 s', // notices a killed worker; a cancel arrives with an answer to a heartbeat
  retry: { initialInterval: '200 ms', maximumInterval: '10 s' },
})

const mostPauseSec = 60

/** Runs the eval cases of a workflow on one of its deployments. In rounds: a run may wait for a person for days. */
export const createAiEval = durable(
  async ({ id, operation_id, undo, settle, progress, renew }) => {
    undo(() => stopAiEval(id))
    progress('running the eval cases')
    for (let before = -1, idle = 0; ; ) {
      const { ended, of } = await advanceAiEval(id, operation_id)
      if (ended === of) break
      idle = ended === before ? idle + 1 : 0
      before = ended
      if (idle > 0) await sleep(`${Math.min(mostPauseSec, 2 ** idle)} s`)
      await renew()
    }
    await settle(() => concludeAiEval(id))
    return { status: 'judged' }
  },
  { onFailure: 'stopped', onCancel: 'cancelled' },
)

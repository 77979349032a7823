import { proxyActivities, proxyLocalActivities, sleep } from '@temporalio/workflow'
import type { AiDeploymentActivities } from '../../activities/ai/deployments.ts'
import type { AiRunEndActivities } from '../../activities/ai/runs.ts'
import type { RunnerActivities } from '../../activities/runner/nodes.ts'
import { durable, type Work } from '../durable.ts'
import { remove } from '../remove.ts'
import { together } from '../together.ts'

const records = proxyLocalActivities<AiDeploymentActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

const { undeployAiRuns } = proxyActivities<AiRunEndActivities>({
  startToCloseTimeout: '10 minutes', // a thousand runs
  heartbeatTimeout: '10 s', // notices a killed worker
  retry: { initialInterval: '200 ms', maximumInterval: '5 s' },
})

/** The activities of one runner. */
const onRunner = (id: string) =>
  proxyActivities<RunnerActivities>({
    taskQueue: `runner-${id}`,
    // A runner begins in a few seconds, on a busy host in half a minute.
    scheduleToCloseTimeout: '3 minutes',
    startToCloseTimeout: '10 s', // it only answers
    retry: { initialInterval: '500 ms', maximumInterval: '10 s' },
  })

/** Starts a runner for the version. After a failure there is no runner. */
export const createAiDeployment = durable(
  async ({ id, carryOut, undo, progress }) => {
    const container = await records.planAiRunner(id)
    progress('starting the runner')
    undo(() => records.noteAiDeployment(id, { container_id: null }))
    const container_id = await carryOut({ kind: 'container' }, 'create', container, { key: 'container' })
    await records.noteAiDeployment(id, { container_id })
    progress('waiting until the runner answers')
    await onRunner(id).answerOnRunner()
    return { status: 'ready' }
  },
  { onFailure: 'error' },
)

/** `code`: of the error with which its open runs end. */
interface DeploymentEnd {
  code?: Parameters<AiRunEndActivities['undeployAiRuns']>[1]
}

/** Ends the runner: from the first step on, it gets no work and is refused everywhere. The end of a primary ends the others. */
export const deleteAiDeployment = durable(
  async (work: Work<DeploymentEnd>) => {
    const { id, progress } = work
    progress('ending the runner')
    const others = await records.othersOfAiDeployment(id)
    const ends = others.map((one) => remove(work, 'ai_deployment', one))
    await together([endRunner(work), ...ends])
    return 'deleted'
  },
  { final: true, onFailure: 'error' },
)

/** Ends the runner when its open runs have ended, which they do within their `wall_sec`. A deletion does not wait for that. */
export const drainAiDeployment = durable(
  async (work: Work<DeploymentEnd>) => {
    const { id, progress, renew } = work
    for (let pauseSec = 1; ; pauseSec = Math.min(2 * pauseSec, longestPauseSec)) {
      const open = await records.countOpenAiRuns(id)
      if (open === 0) break
      progress(`waiting for the end of its ${open} open runs`)
      await sleep(`${pauseSec} s`)
      await renew()
    }
    progress('ending the runner')
    await endRunner(work)
    return 'deleted'
  },
  { onFailure: 'error' },
)

const longestPauseSec = 30

async function endRunner(work: Work<DeploymentEnd>): Promise<void> {
  const { id, input, progress } = work
  const containers = await records.endAiRunner(id)
  progress('ending its runs')
  await undeployAiRuns(id, input.code)
  await together(containers.map((one) => remove(work, 'container', one)))
}

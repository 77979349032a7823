import { ApplicationFailure, proxyLocalActivities } from '@temporalio/workflow'
import type { TaskRunActivities } from '../../activities/deploy/task-runs.ts'
import { durable } from '../durable.ts'
import { on } from '../hosts.ts'

const platform = proxyLocalActivities<TaskRunActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

const failed = (code: string, words: string) => ApplicationFailure.nonRetryable(words, code)

/** Runs a scheduled task's command once. A run whose host is killed fails: nobody knows what the command has done. */
export const createTaskRun = durable(
  async ({ id, undo, progress }) => {
    undo(() => platform.endTaskRun(id, null))
    const { replica, command, timeout_sec } = await platform.beginTaskRun(id)
    progress(`running the command on ${replica.node}`)
    undo(() => on(replica.host_id).endInReplicaOnHost(replica, id))
    const { timed_out, ...result } = await on(replica.host_id, {
      scheduleToStartTimeout: '1 minute',
      startToCloseTimeout: `${timeout_sec + 60} s`,
      heartbeatTimeout: '30 s', // it is not tried again, so a restart of Temporal must not end it
      retry: { maximumAttempts: 1 },
    }).runInReplicaOnHost(replica, { command, mark: id, timeoutSec: timeout_sec })
    await platform.endTaskRun(id, result)
    if (timed_out) throw failed('timed_out', `The command was ended after ${timeout_sec} s`)
    if (result.exit_code !== 0)
      throw failed('command_failed', `The command ended with exit code ${result.exit_code}`)
    return { status: 'succeeded' }
  },
  { onFailure: 'failed', onCancel: 'cancelled' },
)

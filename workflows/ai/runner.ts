import {
  ActivityFailure,
  ApplicationFailure,
  ChildWorkflowFailure,
  proxyActivities,
  TimeoutFailure,
} from '@temporalio/workflow'
import type { RunToCarryOut } from '../../activities/ai/runs.ts'
import type { RunnerActivities } from '../../activities/runner/nodes.ts'

// How the workflow of a run has its deployment's runner do something, and what it learns of a failure.

/** Expressions take at most half a minute; the rest is for a busy API. */
const evaluationSec = 120
/** An attempt that uses all its time still says so. */
const marginSec = 10

type Its = Pick<RunToCarryOut, 'deployment_id'> & Partial<RunToCarryOut>

/** How a node is carried out. `node` null: the run's output. */
export const onRunner = ({ deployment_id, attempts, waits, wall_sec }: Its, node: string | null) => {
  const its = node === null ? undefined : attempts?.[node]
  const sec = node !== null && waits?.maps[node] ? wall_sec : its?.timeout_sec
  return proxyActivities<RunnerActivities>({
    taskQueue: `runner-${deployment_id}`,
    startToCloseTimeout: `${(sec ?? evaluationSec) + marginSec} s`,
    heartbeatTimeout: '10 s', // notices a killed runner; a cancel arrives with an answer to a heartbeat
    summary: node ?? 'output',
    retry: its
      ? {
          maximumAttempts: its.most,
          initialInterval: `${its.backoff_sec} s`,
          backoffCoefficient: 2,
          maximumInterval: `${its.backoff_sec * 1024} s`, // it doubles up to ten times
        }
      : // What only evaluates has the same end each time: it is tried until the run's time is over.
        { initialInterval: '500 ms', maximumInterval: '10 s' },
  })
}

export interface Fault {
  code: string
  message: string
}

export const internal: Fault = {
  code: 'internal',
  message: 'The platform failed; its operators can see why',
}

export const failureOf = ({ code, message }: Fault): ApplicationFailure =>
  ApplicationFailure.nonRetryable(message, code)

/** What the workflow's author sees. Others are `internal`. */
export function faultOf(error: unknown): Fault {
  const isWrapped = error instanceof ActivityFailure || error instanceof ChildWorkflowFailure
  const cause = isWrapped ? error.cause : error
  if (cause instanceof TimeoutFailure)
    return cause.timeoutType === 'HEARTBEAT'
      ? { code: 'runner_lost', message: 'The runner ended during the last attempt' }
      : { code: 'timed_out', message: 'The last attempt took longer than its `timeout_sec`' }
  if (cause instanceof ApplicationFailure && cause.type && /^[a-z][a-z0-9_]*$/.test(cause.type))
    return { code: cause.type, message: cause.message }
  return internal
}

import {
  ActivityFailure,
  ApplicationFailure,
  ChildWorkflowFailure,
  proxyActivities,
  TimeoutFailure,
} from '@temporalio/workflow'
import type { RunToCarryOut } from '../../activities/ai/runs.ts'
import type { RunnerActivities } from '../../activities/runner/nodes.ts'
import type { Row } from '../../lib/ai/rows.ts'

// How the workflow of a run has its deployment's runner do something, and what it learns of a failure.

/** Expressions take at most half a minute; the rest is for a busy API. */
const evaluationSec = 120
/** An attempt that uses all its time still says so. */
const marginSec = 10

type Its = Pick<RunToCarryOut, 'deployment_id'> & Partial<RunToCarryOut>

const usual = ({ deployment_id }: Its) => ({
  taskQueue: `runner-${deployment_id}`,
  heartbeatTimeout: '10 s' as const, // notices a killed runner; a cancel arrives with an answer to a heartbeat
})

/** How a node is carried out after `made` attempts. `node` null: the run's output. */
export const onRunner = (its: Its, node: string | null, made = 0) => {
  const ofNode = node === null ? undefined : its.attempts?.[node]
  const sec = node !== null && its.waits?.maps[node] ? its.wall_sec : ofNode?.timeout_sec
  return proxyActivities<RunnerActivities>({
    ...usual(its),
    startToCloseTimeout: `${(sec ?? evaluationSec) + marginSec} s`,
    summary: node ?? 'output',
    retry: ofNode
      ? {
          maximumAttempts: ofNode.most - made,
          initialInterval: `${ofNode.backoff_sec * 2 ** made} s`,
          backoffCoefficient: 2,
          maximumInterval: `${ofNode.backoff_sec * 1024} s`, // it doubles up to ten times
        }
      : // What only evaluates has the same end each time: it is tried until the run's time is over.
        { initialInterval: '500 ms', maximumInterval: '10 s' },
  })
}

/** How long one node of a row may take. The runner itself holds it to that. */
export const withinSec = ({ attempts }: Its, node: string): number =>
  (attempts?.[node]?.timeout_sec ?? evaluationSec) + marginSec

/** How the nodes of a row are carried out: once. What follows a failure is an activity of its own. */
export const onRunnerInARow = (its: Its, { names, output }: Row) => {
  const all = names.map((name) => withinSec(its, name) + marginSec)
  const parts = [...names, ...(output ? ['output'] : [])].join(' → ')
  return proxyActivities<RunnerActivities>({
    ...usual(its),
    startToCloseTimeout: `${all.reduce((sum, one) => sum + one, output ? evaluationSec : 0)} s`,
    summary: parts,
    retry: { maximumAttempts: 1 },
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

/** Another attempt cannot help. */
export const isPermanent = (error: unknown): boolean =>
  error instanceof ActivityFailure &&
  error.cause instanceof ApplicationFailure &&
  error.cause.nonRetryable === true

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

import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common'
import {
  CancellationScope,
  CancelledFailure,
  ChildWorkflowFailure,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
  sleep,
  startChild,
} from '@temporalio/workflow'
import type { Attempts, RunToCarryOut } from '../../activities/ai/runs.ts'
import type { AiValueActivities, AiWaitActivities } from '../../activities/ai/waits.ts'
import { itemName } from '../../lib/ai/graph.ts'
import { runStartOptions } from '../../lib/operation-workflows.ts'
import type { NodeEnd } from '../../lib/runner-protocol.ts'
import { failureOf, faultOf, onRunner } from './runner.ts'

// Runs that are a part of another run. Temporal tells the workflow of that one when such a run ends, so waiting for it holds no
// worker's slot.

const records = proxyLocalActivities<AiWaitActivities>({
  startToCloseTimeout: '10 s', // a few queries, or one transaction
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

export const values = proxyActivities<AiValueActivities>({
  startToCloseTimeout: '2 minutes', // values of 8 MiB
  heartbeatTimeout: '10 s', // notices a killed worker
  retry: { initialInterval: '200 ms', maximumInterval: '5 s' },
})

/** A run whose nodes are runs. */
export interface Caller {
  run: RunToCarryOut['run']
  deployment_id: string
}
type Child = Parameters<typeof runStartOptions>[0] & RunToCarryOut['run']

/** Refusals that may be over when the next attempt is made. */
const passing = new Set(['workflow_failed', 'timed_out', 'not_deployed', 'too_many_runs'])

/** Carries out a node, or an item of a map, that is a run. Throws an ApplicationFailure with the code of the last attempt's fault. */
export async function carryOutRun(
  caller: Caller,
  node: string,
  item: number | null,
  { timeout_sec, most, backoff_sec }: Attempts,
): Promise<NodeEnd> {
  for (let attempt = 1; ; attempt++) {
    try {
      return await attemptOf(caller, node, item, attempt, timeout_sec)
    } catch (error) {
      if (isCancellation(error)) throw error
      const fault = faultOf(error)
      if (attempt >= most || !passing.has(fault.code)) throw failureOf(fault)
    }
    await sleep(backoff_sec * 1000 * 2 ** (attempt - 1))
  }
}

async function attemptOf(
  caller: Caller,
  node: string,
  item: number | null,
  attempt: number,
  timeoutSec: number,
): Promise<NodeEnd> {
  const { run } = caller
  const called = await onRunner(caller, node).callWorkflowOnRunner(run._id, node, item, attempt)
  if (called.state === 'done') return { status: 'succeeded', case: null }
  if (called.state === 'refused') throw failureOf(called)
  const isInTime = await endedWithin(called.run, timeoutSec)
  const name = item === null ? node : itemName(node, item)
  const { _id, tenant_id } = called.run
  const its = await values.takeAiChildOutput(run, name, attempt, { _id, tenant_id })
  if ('end' in its) return its.end
  if (isInTime) throw failureOf(its.failed)
  throw failureOf({ code: 'timed_out', message: 'The last attempt took longer than its `timeout_sec`' })
}

/** Waits for the end of a run, which is cancelled when its time is over, or with this scope. False: its time was over. */
async function endedWithin(child: Child, timeoutSec: number): Promise<boolean> {
  const scope = CancellationScope.current()
  const cancel = (): Promise<void> => CancellationScope.nonCancellable(() => records.cancelAiChild(child))
  let isOver = false
  let isInTime = true
  if (scope.cancellable) void scope.cancelRequested.catch(() => (isOver ? undefined : cancel()))
  const timer = new CancellationScope({ cancellable: true })
  const timing = timer
    .run(async () => {
      await sleep(timeoutSec * 1000)
      isInTime = false
      await cancel()
    })
    .catch((error: unknown) => {
      if (!isCancellation(error)) throw error
    })
  try {
    await CancellationScope.nonCancellable(() => endOf(child))
  } finally {
    isOver = true
    timer.cancel()
    await timing
  }
  if (scope.consideredCancelled) throw new CancelledFailure('The run was cancelled')
  return isInTime
}

async function endOf(child: Child): Promise<void> {
  try {
    const workflow = await startChild('runAiWorkflow', {
      ...runStartOptions(child),
      // Its record says that it is to be cancelled if this workflow is terminated.
      parentClosePolicy: 'ABANDON',
    })
    await workflow.result()
  } catch (error) {
    if (error instanceof WorkflowExecutionAlreadyStartedError) await lookUntilEnded(child)
    else if (!(error instanceof ChildWorkflowFailure)) throw error // terminated: its record says so
  }
}

/** The dispatcher starts a run left for a minute, for example while this workflow had no worker. */
async function lookUntilEnded(child: Child): Promise<void> {
  for (let seconds = 1; !(await records.hasAiChildEnded(child)); seconds = Math.min(seconds * 2, 1_800))
    await sleep(seconds * 1000)
}

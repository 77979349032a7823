import { condition, defineSignal, proxyLocalActivities, setHandler } from '@temporalio/workflow'
import type { RunToCarryOut } from '../../activities/ai/runs.ts'
import type { AiWaitActivities } from '../../activities/ai/waits.ts'
import { decisionSignal } from '../../lib/operation-workflows.ts'
import type { NodeEnd } from '../../lib/runner-protocol.ts'
import { failureOf } from './runner.ts'

// Nodes that wait for a person. The decision is in the record of its node; the signal only says that it is there.

const records = proxyLocalActivities<AiWaitActivities>({
  startToCloseTimeout: '10 s', // a query
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** Waits for the decision on a node. Throws `refused`, `deadline_over`. */
export type AwaitDecision = (run: RunToCarryOut['run'], node: string) => Promise<NodeEnd>

/** Call at the beginning of the workflow: a signal may come before its node waits. */
export function makeApprovals(): AwaitDecision {
  let told = 0
  setHandler(defineSignal(decisionSignal), () => {
    told++
  })
  return async (run, node) => {
    for (;;) {
      const before = told
      const its = await records.lookAtAiDecision(run, node)
      if (its.end === null && its.left_ms > 0) {
        await condition(() => told > before, its.left_ms)
        continue
      }
      if (its.end === null)
        throw failureOf({ code: 'deadline_over', message: 'Nobody decided before the deadline' })
      if (its.error) throw failureOf(its.error)
      return its.end
    }
  }
}

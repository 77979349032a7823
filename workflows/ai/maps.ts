import {
  CancellationScope,
  executeChild,
  isCancellation,
  makeContinueAsNewFunc,
  proxyLocalActivities,
  setCurrentDetails,
  workflowInfo,
} from '@temporalio/workflow'
import type { Attempts } from '../../activities/ai/runs.ts'
import type { AiWaitActivities } from '../../activities/ai/waits.ts'
import { itemsWorkflowId, workflowTaskTimeout } from '../../lib/operation-workflows.ts'
import type { NodeEnd } from '../../lib/runner-protocol.ts'
import { type Caller, carryOutRun, values } from './child-runs.ts'
import { failureOf, faultOf } from './runner.ts'

// Maps whose items are runs. They have a workflow of their own, so that the run's history stays small. The items of other maps
// are carried out by the runner alone (activities/runner/maps.ts).

const records = proxyLocalActivities<AiWaitActivities>({
  startToCloseTimeout: '10 s', // one transaction
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** In events. An item has some twenty. */
const longHistory = 1_500

export interface MapOfRuns extends Caller {
  node: string
  all: number
  at_once: number
  /** What an item that fails does. */
  on_error: 'fail' | 'value'
  attempts: Attempts
}

/** Carries out the items from this one on, `at_once` at a time. Throws the first failure of an item that has no other value. */
export async function carryOutAiItems(map: MapOfRuns, from = 0): Promise<void> {
  const { run, node, all, at_once, on_error, attempts } = map
  let next = from
  const failures: unknown[] = []
  const scope = new CancellationScope()
  const one = async (item: number): Promise<void> => {
    try {
      await carryOutRun(map, node, item, attempts)
    } catch (error) {
      if (isCancellation(error)) throw error
      const fault = faultOf(error)
      await records.failAiItem(run, node, item, fault)
      if (on_error === 'fail') throw failureOf({ ...fault, message: `Item ${item}: ${fault.message}` })
    }
  }
  const lane = async (): Promise<void> => {
    while (next < all && failures.length === 0 && workflowInfo().historyLength < longHistory) {
      setCurrentDetails(`item ${next} of ${all}`)
      await one(next++)
    }
  }
  const carried = (): Promise<void> =>
    lane().catch((error: unknown) => {
      failures.push(error)
      scope.cancel()
    })
  await scope.run(() => Promise.all(Array.from({ length: at_once }, carried)))
  setCurrentDetails('')
  if (failures.length > 0) throw failures[0]
  if (next < all) await makeContinueAsNewFunc<typeof carryOutAiItems>({ workflowTaskTimeout })(map, next)
}

/** Waits for the items of a map that are runs, and gathers what they leave. */
export async function awaitItems(map: MapOfRuns): Promise<NodeEnd> {
  await executeChild(carryOutAiItems, {
    workflowId: itemsWorkflowId(map.run._id, map.node),
    args: [map],
    workflowTaskTimeout,
    staticSummary: `Items of ${map.node}`,
  })
  await values.gatherAiItems(map.run, map.node, map.all)
  return { status: 'succeeded', case: null }
}

import type { RunToCarryOut } from '../../activities/ai/runs.ts'
import type { NodeAnswer, NodeEnd } from '../../lib/runner-protocol.ts'
import type { AwaitDecision } from './approvals.ts'
import { carryOutRun } from './child-runs.ts'
import { awaitItems } from './maps.ts'

/** Waits for what a node waits for: a run, the runs that are its items, or a person. */
export async function endOfWait(
  its: RunToCarryOut,
  node: string,
  { items }: NodeAnswer,
  awaitDecision: AwaitDecision,
): Promise<NodeEnd> {
  const { run, deployment_id, waits } = its
  const attempts = waits.calls[node]
  const map = waits.maps[node]
  if (!attempts) return awaitDecision(run, node)
  if (!map) return carryOutRun(its, node, null, attempts)
  return awaitItems({ run, deployment_id, node, all: items ?? 0, attempts, ...map })
}

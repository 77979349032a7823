import { Problem } from '../../lib/problem.ts'
import type { Ended } from '../../lib/runner-protocol.ts'
import { askPerson } from './decisions.ts'
import { gatherItems, noteItems } from './run-items.ts'
import { endNode, type RunnerOf } from './run-nodes.ts'

/** Records how an attempt leaves a node. Repeated, it changes nothing. Throws NotFound, `attempt_over`, `too_large`. */
export async function endAttempt(
  runner: RunnerOf,
  run_id: string,
  node: string,
  attempt: number,
  end: Ended,
): Promise<void> {
  switch (end.status) {
    case 'gathered':
      return gatherItems(runner, run_id, node, { all: end.items, attempt })
    case 'waiting':
      if (end.message !== null) return askPerson(runner, run_id, node, attempt, end.message)
      if (end.items !== null) await noteItems(runner, run_id, node, attempt, end.items)
      return
    case 'succeeded':
    case 'skipped':
      return endNode(runner, run_id, node, attempt, end)
    default:
      throw new Problem(
        422,
        'invalid_input',
        'The attempt cannot end in this way',
        String(end satisfies never),
      )
  }
}

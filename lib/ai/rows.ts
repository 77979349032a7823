import type { Graph } from './graph.ts'
import { nextStep, type States } from './schedule.ts'

// Nodes in a row: one activity carries them out, so that not each of them passes through Temporal. Also runs in Temporal's
// sandbox.

/** Bounds what is asked again of the records after a failure, and for how long one activity has a slot of its runner. */
const longest = 16

/** Nodes of which each starts alone, once the one before it has succeeded. */
export interface Row {
  names: string[]
  /** Nothing is left to do but the run's output, once the last has succeeded. */
  output: boolean
}

/**
 * The row that begins with a node that starts while no other runs. `isFit`: the node may be in a row. A node that fails, is
 * skipped, or chooses a case ends the row: `nextStep` then says what follows.
 */
export function rowFrom(graph: Graph, states: States, first: string, isFit: (name: string) => boolean): Row {
  const now: States = { ...states }
  const names = [first]
  for (let last = first; ; ) {
    now[last] = { is: 'succeeded' }
    const { start, skip, end } = nextStep(graph, now)
    if (end) return { names, output: end.status === 'succeeded' && skip.length === 0 }
    const [next, ...others] = start
    const isAlone = next !== undefined && others.length === 0 && skip.length === 0
    if (!isAlone || !isFit(next) || names.length === longest) return { names, output: false }
    names.push(next)
    last = next
  }
}

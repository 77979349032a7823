import { withOutput } from '../../lib/ai/programs.ts'
import { type Begun, type Ended, smallOutput } from '../../lib/runner-protocol.ts'
import type { Task } from './kinds.ts'
import type { RunnerWork } from './work.ts'

// The next node of a row calls its model while the API still records the end of the node before it.

/** A node that is at work, although the API has not begun it yet. */
export interface Ahead {
  end: Promise<Ended>
  /** The API has begun it: what its model says, and has said, may be seen. */
  confirm(): void
  /** The API does not begin it: its call ends. */
  stop(): void
}

/**
 * What the node `name` gets after a task with this output. Null: the runner does not know it without the API, or the node may not
 * go ahead. Only a call of a model may: it changes nothing of the run, and a repetition gets the kept answer. In the retry of a
 * run, the API may take the node over from the run before.
 */
export function knownAhead(
  { spec, plan }: RunnerWork,
  name: string,
  { name: last, begun }: Task,
  output: string,
): Begun | null {
  const node = spec.nodes[name]
  if (node?.kind !== 'llm' || node.tools?.length || begun.retries || output.length > smallOutput) return null
  const uses = plan.nodes[name]?.uses ?? []
  if (!uses.every((use) => use === last || Object.hasOwn(begun.nodes, use))) return null
  return { done: null, given: withOutput(begun.given, last, output), nodes: {} }
}

/** Starts a node ahead. `carry`: carries it out. */
export function goAhead(
  work: RunnerWork,
  signal: AbortSignal,
  carry: (work: RunnerWork, signal: AbortSignal) => Promise<Ended>,
): Ahead {
  const stopping = new AbortController()
  const held: Parameters<RunnerWork['tokens']['say']>[] = []
  let isBegun = false
  const say: RunnerWork['tokens']['say'] = (...token) =>
    isBegun ? work.tokens.say(...token) : void held.push(token)
  const end = carry({ ...work, tokens: { ...work.tokens, say } }, AbortSignal.any([signal, stopping.signal]))
  end.catch(() => {}) // who waits for it later hears of it
  return {
    end,
    confirm() {
      isBegun = true
      for (const token of held) work.tokens.say(...token)
    },
    stop: () => stopping.abort(),
  }
}

import { withOutput } from '../../lib/ai/programs.ts'
import type { Begun, Ended } from '../../lib/runner-protocol.ts'
import type { Task } from './kinds.ts'
import { NodeFault, timedOut } from './node-faults.ts'
import type { RunnerWork } from './work.ts'

// The next node of a row calls its model while the API still records the end of the node before it.

/** A node that is at work, although the API has not begun it yet. */
export interface Ahead {
  /**
   * The API has begun the node: what its model says, and has said, may be seen. Returns the node's end. Null: carry it out
   * again, since it has failed by what may be otherwise now.
   */
  confirm(): Promise<Ended> | null
  /** The API does not begin the node: its call ends. */
  stop(): void
}

/** Characters. Values of any size may have nothing to do with the node, and the API gives it only what it names. */
const mostGiven = 256 * 1024

/**
 * What the node `name` gets after a task with this output. Null: the runner does not know it without the API, or the node may not
 * go ahead. Only a call of a model may: it changes nothing of the run, and a repetition gets the kept answer. A repeated search may find
 * something else, so that its node's call would be another. In the retry of a run, the API may take the node over from the run before.
 */
export function knownAhead(
  { spec, plan }: RunnerWork,
  name: string,
  { name: last, begun }: Task,
  output: string,
): Begun | null {
  const node = spec.nodes[name]
  if (node?.kind !== 'llm' || node.tools?.length) return null
  if (begun.retries || spec.nodes[last]?.kind === 'retrieve') return null
  if (begun.given.length + output.length > mostGiven) return null
  const uses = plan.nodes[name]?.uses ?? []
  if (!uses.every((use) => use === last || Object.hasOwn(begun.nodes, use))) return null
  return { done: null, given: withOutput(begun.given, last, output), nodes: {} }
}

/** Starts a node ahead. `carry` does the node's work. */
export function goAhead(
  work: RunnerWork,
  signal: AbortSignal,
  carry: (work: RunnerWork, signal: AbortSignal) => Promise<Ended>,
): Ahead {
  const stopping = new AbortController()
  const held: Parameters<RunnerWork['tokens']['say']>[] = []
  let isBegun = false
  let isVoid = false
  const say: RunnerWork['tokens']['say'] = (...token) =>
    isBegun ? work.tokens.say(...token) : void held.push(token)
  const end = carry({ ...work, tokens: { ...work.tokens, say } }, AbortSignal.any([signal, stopping.signal]))
  end.catch((error: unknown) => (isVoid = maySucceed(error)))
  return {
    confirm() {
      if (isVoid) return null
      isBegun = true
      for (const token of held) work.tokens.say(...token)
      return end
    },
    stop: () => stopping.abort(),
  }
}

/** Its time has passed while the API was away, or a value was too large of which the API gives it less. */
const maySucceed = (error: unknown): boolean =>
  error instanceof NodeFault && (error.code === timedOut.code || error.code.startsWith('expression_'))

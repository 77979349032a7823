import type { Edge, Graph } from './graph.ts'

// Which nodes of a run start next. A pure function of the graph and of how far its nodes are, so that workflow code can
// call it: it runs in Temporal's sandbox. The rules:
// - A node starts once, when all nodes that it waits for have ended, if at least one of its edges is taken.
// - If none is taken it is skipped; so is what waits for skipped nodes alone. A node without needs starts at once.
// - The node that a `goto` names starts only if such a failure happened, whatever else it needs.
// - A failure that its node does not handle ends the run: nothing starts any more, and what runs is cancelled.

export type NodeState =
  | { is: 'waiting' }
  | { is: 'running' }
  /** `case`: what a switch chose. */
  | { is: 'succeeded'; case?: string }
  /** After the last attempt. */
  | { is: 'failed' }
  /** By these rules, or because the node's `when` was false. */
  | { is: 'skipped' }
  | { is: 'cancelled' }

/** By name; a node that is not named is waiting. */
export type States = Record<string, NodeState>

export type RunEnd =
  | { status: 'succeeded' }
  /** `failures`: the nodes whose failure ended the run. */
  | { status: 'failed'; failures: string[] }
  | { status: 'cancelled' }

/** What the workflow does now. All lists are in the order of names. */
export interface Step {
  start: string[]
  skip: string[]
  cancel: string[]
  /** Null while nodes run or start. */
  end: RunEnd | null
}

/** `isCancelled`: the run was cancelled, or has used its time. */
export function nextStep(graph: Graph, states: States, isCancelled = false): Step {
  const names = Object.keys(graph).toSorted()
  const running = names.filter((name) => stateOf(states, name).is === 'running')
  const failures = names.filter(
    (name) => stateOf(states, name).is === 'failed' && graph[name]?.on_error === 'fail',
  )
  const isStopping =
    isCancelled || failures.length > 0 || names.some((name) => stateOf(states, name).is === 'cancelled')
  if (isStopping) {
    const end: RunEnd = failures.length > 0 ? { status: 'failed', failures } : { status: 'cancelled' }
    return { start: [], skip: [], cancel: running, end: running.length > 0 ? null : end }
  }
  const { start, skip, open } = decide(graph, states, names)
  if (running.length > 0 || start.length > 0) return { start, skip, cancel: [], end: null }
  // Validation refuses a cycle. If there were one, the run would end all the same.
  if (open.length > 0) return { start, skip, cancel: [], end: { status: 'failed', failures: open } }
  return { start, skip, cancel: [], end: { status: 'succeeded' } }
}

const waiting: NodeState = { is: 'waiting' }
const stateOf = (states: States, name: string): NodeState =>
  (Object.hasOwn(states, name) ? states[name] : undefined) ?? waiting

/** Skipping a node may decide others, so it goes on until nothing changes. `open` are the nodes that wait. */
function decide(
  graph: Graph,
  states: States,
  names: readonly string[],
): { start: string[]; skip: string[]; open: string[] } {
  const now = { ...states }
  const start = new Set<string>()
  const skip = new Set<string>()
  let open = names.filter((name) => stateOf(states, name).is === 'waiting')
  for (let isChanged = true; isChanged; ) {
    isChanged = false
    for (const name of open) {
      const verdict = verdictOn(graph, now, name)
      if (verdict === 'wait') continue
      now[name] = { is: verdict === 'start' ? 'running' : 'skipped' }
      ;(verdict === 'start' ? start : skip).add(name)
      isChanged = true
    }
    open = open.filter((name) => !start.has(name) && !skip.has(name))
  }
  return { start: [...start].toSorted(), skip: [...skip].toSorted(), open }
}

function verdictOn(graph: Graph, states: States, name: string): 'start' | 'skip' | 'wait' {
  const edges = graph[name]?.edges ?? []
  if (edges.some(({ from }) => ['waiting', 'running'].includes(stateOf(states, from).is))) return 'wait'
  if (edges.length === 0) return 'start'
  const gotos = edges.filter((edge) => edge.if === 'failure')
  const deciding = gotos.length > 0 ? gotos : edges
  return deciding.some((edge) => isTaken(graph, states, edge)) ? 'start' : 'skip'
}

function isTaken(graph: Graph, states: States, { from, if: condition }: Edge): boolean {
  const state = stateOf(states, from)
  if (condition === 'failure') return state.is === 'failed'
  const chosen = chosenBy(graph, from, state)
  if (chosen === undefined) return false
  return condition === 'success' || condition.case === chosen
}

/** The case of a node that counts as succeeded, null if it is no switch; undefined if it does not count so. */
function chosenBy(graph: Graph, name: string, state: NodeState): string | null | undefined {
  if (state.is === 'succeeded') return state.case ?? null
  const handling = graph[name]?.on_error
  return state.is === 'failed' && typeof handling === 'object' ? handling.value.case : undefined
}

import { cancellationSignal, Context } from '@temporalio/activity'
import { variablesOf } from '../../lib/ai/plan.ts'
import { defaults, type NodeSpec } from '../../lib/ai/node-kinds.ts'
import { withOutput } from '../../lib/ai/programs.ts'
import type { Called } from '../../lib/runner-maps.ts'
import {
  type Begun,
  type Ended,
  type Given,
  type NodeAnswer,
  type NodesInARow,
  smallOutput,
  type Turn,
} from '../../lib/runner-protocol.ts'
import { makeCaller } from './workflow-calls.ts'
import { type Ahead, goAhead, knownAhead } from './ahead.ts'
import { outcomeOf, type Task } from './kinds.ts'
import { NodeFault, timedOut, withoutQuotes } from './node-faults.ts'
import { jsonAt, type RunnerWork } from './work.ts'

/** How a node is carried out. */
export interface How {
  /** Attempts that were made before this activity. */
  before?: number
  /** The nodes after it, if they are to follow at once. */
  row?: NodesInARow
}

/** Activities of a runner. Their names end in `OnRunner`. What goes through Temporal are ids, never values. */
export function makeNodesOnRunner(work: RunnerWork) {
  const { api, tokens } = work
  const callWorkflow = makeCaller(work)

  /** Carries out an attempt of a node, and of those that follow it as long as each succeeds. Records what they leave. */
  async function carryOut(
    run: string,
    { nodes, output }: NodesInARow,
    attempt: number,
    signal: AbortSignal,
  ): Promise<NodeAnswer> {
    let begun: Begun | null = null
    let early = null as Promise<Ended> | null // TypeScript would take it for null in the loop
    askEarly(run, nodes[0]?.node, signal)
    for (const [passed, { node: name, within_sec }] of nodes.entries()) {
      begun ??= await api.beginNode(run, name, attempt, signal)
      if (begun.done) return { ...begun.done, passed }
      const task: Task = { run, name, attempt, begun, signal }
      const end: Ended = await (early ?? outcomeWithin(work, task, within_sec))
      if (end.status !== 'succeeded') {
        await tokens.sent(run) // they come before the node's end
        await api.endNode(run, name, attempt, end, signal)
        return { ...answerOf(end), passed }
      }
      const following = nodes[passed + 1]
      // After a case, the run's workflow says what follows.
      let next: Turn['next'] = null
      if (end.case === null && following) next = { node: following.node }
      else if (end.case === null && output) next = await outputAfter(begun, name, end.output)
      const said = { case: end.case, output: end.output, tokens: await tokens.take(run, name), next }
      const ahead = end.case === null && following ? startAhead(task, end.output, following) : null
      const turned = await api.turnNode(run, name, attempt, said, signal).catch((error: unknown) => {
        ahead?.stop()
        throw error
      })
      early = turned.begun?.done === null ? (ahead?.confirm() ?? null) : null
      if (!early) ahead?.stop()
      if (turned.begun && !following) await giveOutput(run, turned.begun, signal)
      if (!turned.begun || !following)
        return { ...answerOf(end), passed, ...(turned.begun || turned.output ? { output: true } : {}) }
      begun = turned.begun
    }
    throw new Error('a row without nodes')
  }

  const outcomeWithin = (its: RunnerWork, task: Task, within_sec: number): Promise<Ended> => {
    const sec = Math.min(within_sec, ownSec(work.spec.nodes[task.name]))
    return within(sec, task.signal, (signal) => outcomeOf(its, { ...task, signal }))
  }

  /** Starts the node after one with this output. Null: it waits for the API. */
  function startAhead(
    task: Task,
    output: string,
    { node: name, within_sec }: NodesInARow['nodes'][number],
  ): Ahead | null {
    const begun = knownAhead(work, name, task, output)
    const carry = (its: RunnerWork, signal: AbortSignal): Promise<Ended> =>
      outcomeWithin(its, { ...task, name, begun: begun ?? task.begun, signal }, within_sec)
    return begun && goAhead(work, task.signal, carry)
  }

  /** Asks for a node's token while the node begins. If it is refused, the node hears of it when it asks itself. */
  function askEarly(run: string, name: string | undefined, signal: AbortSignal): void {
    const node = name === undefined ? undefined : work.spec.nodes[name]
    if (node?.kind === 'llm') api.modelGrant(run, node.model, signal).catch(() => {})
  }

  /** The run's output after the last node, if all that it names is at hand, and it is small. */
  async function outputAfter(begun: Begun, last: string, output: string): Promise<Turn['next']> {
    const isAtHand = (name: string): boolean => name === last || Object.hasOwn(begun.nodes, name)
    if (!work.plan.output.uses.every(isAtHand)) return 'output'
    // A failure is told by the one who asks for the values.
    const json = await outputOf(withOutput(begun.given, last, output)).catch(() => null)
    return json !== null && json.length <= smallOutput ? { output: json } : 'output'
  }

  /** The JSON of the run's output, made of what its nodes have left. */
  async function outputOf(given: string): Promise<string> {
    const { pool, spec, plan, key } = work
    const variables = variablesOf(plan, plan.output.uses)
    const wanted = { '/output': { value: spec.output } }
    const isRedacted = (plan.redacted?.output ?? null) !== null
    const values = await withoutQuotes(isRedacted, () =>
      // No node has such a name.
      pool.evaluate({ key: `${key} /output`, variables, wanted, given }),
    )
    return jsonAt('/output', values)
  }

  const giveOutput = async (run: string, { given }: Given, signal: AbortSignal): Promise<void> =>
    api.giveOutput(run, await outputOf(given), signal)

  return {
    /** Answers: the runner has its spec, polls its queue, and opens what is sealed for it. */
    async answerOnRunner(): Promise<void> {},

    /** Carries out one attempt of a node, or of the nodes of a row. */
    async runNodeOnRunner(run: string, node: string, { before = 0, row }: How = {}): Promise<NodeAnswer> {
      const { attempt } = Context.current().info
      const alone: NodesInARow = { nodes: [{ node, within_sec: Infinity }], output: false }
      return carryOut(run, row ?? alone, before + attempt, cancellationSignal())
    },

    /** Has another workflow run for a node, or for an item of a map. */
    callWorkflowOnRunner: (
      run: string,
      node: string,
      item: number | null,
      attempt: number,
    ): Promise<Called> => callWorkflow({ run, node, item, attempt }, cancellationSignal()),

    /** Makes the run's output. */
    async giveOutputOnRunner(run: string): Promise<void> {
      const signal = cancellationSignal()
      await giveOutput(run, await api.givenForOutput(run, signal), signal)
    },
  }
}

/** Of one attempt, which its workflow gives some seconds more. The API holds requests and tools to theirs, and says how they failed. */
const ownSec = (node: NodeSpec | undefined): number =>
  node?.kind === 'llm' || node?.kind === 'retrieve'
    ? (node.timeout_sec ?? defaults.timeout_sec[node.kind])
    : Infinity

/** Ends work that takes too long. Throws NodeFault then. */
async function within<T>(
  sec: number,
  signal: AbortSignal,
  work: (its: AbortSignal) => Promise<T>,
): Promise<T> {
  if (sec === Infinity) return work(signal) // Temporal ends it
  const late = AbortSignal.timeout(sec * 1000)
  try {
    return await work(AbortSignal.any([signal, late]))
  } catch (cause) {
    if (!late.aborted || signal.aborted) throw cause
    throw new NodeFault(timedOut.code, timedOut.message, { permanent: false, cause })
  }
}

function answerOf(end: Ended): NodeAnswer {
  switch (end.status) {
    case 'succeeded':
      return { status: 'succeeded', case: end.case }
    case 'gathered':
      return { status: 'succeeded', case: null }
    case 'waiting':
      return { status: 'waiting', case: null, ...(end.items === null ? {} : { items: end.items }) }
    case 'skipped':
      return { status: 'skipped', case: null }
    default:
      return end satisfies never
  }
}

export type RunnerActivities = ReturnType<typeof makeNodesOnRunner>

import {
  CancellationScope,
  condition,
  isCancellation,
  proxyLocalActivities,
  setCurrentDetails,
  sleep,
} from '@temporalio/workflow'
import type { AiRunActivities, RunToCarryOut } from '../../activities/ai/runs.ts'
import { type Row, rowFrom } from '../../lib/ai/rows.ts'
import { nextStep, type NodeState, type States } from '../../lib/ai/schedule.ts'
import type { NodeAnswer, NodeEnd } from '../../lib/runner-protocol.ts'
import { endAs } from '../ends.ts'
import { makeApprovals } from './approvals.ts'
import { type Fault, faultOf, internal, isPermanent, onRunner, onRunnerInARow, withinSec } from './runner.ts'
import { endOfWait } from './waits.ts'

// Runs of AI workflows. Which node starts is decided here, and each node, or row of nodes, is one activity on its deployment's
// runner. Values never come here: the runner reads and writes them at the internal API.

const records = proxyLocalActivities<AiRunActivities>({
  startToCloseTimeout: '10 s', // a few queries, or one transaction
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

type End = Parameters<AiRunActivities['endAiRun']>[1]

/** Carries out a run of an AI workflow. */
export async function runAiWorkflow(runId: string): Promise<void> {
  const cancelled = CancellationScope.current().cancelRequested
  await CancellationScope.nonCancellable(async () => {
    const its = await records.beginAiRun(runId)
    if (!its) return
    if ('ended' in its) return endAs(its.ended)
    const end = await carryOut(its, cancelled)
    const before = await records.endAiRun(its.run, end)
    endAs(before ?? { state: end.status, code: end.status === 'failed' ? end.error.code : null })
  })
}

/** Runs nodes until there is nothing left to do, and then makes the output. Is itself not cancelled. */
async function carryOut(its: RunToCarryOut, cancelled: Promise<never>): Promise<End> {
  const states: States = {}
  const faults: Record<string, Fault> = {}
  const scopes = new Map<string, CancellationScope>()
  const output = new CancellationScope()
  const awaitDecision = makeApprovals()
  let stopped: 'cancelled' | 'out of time' | null = its.cancelled ? 'cancelled' : null
  let isNews = false
  let hasOutput = false

  const stop = (why: 'cancelled' | 'out of time'): void => {
    stopped ??= why
    isNews = true
    output.cancel()
  }
  cancelled.catch(() => stop('cancelled'))
  void sleep(its.wall_sec * 1000).then(() => stop('out of time'))

  /** Carries a node out. `work` resolves when it has ended. */
  const start = (name: string, work = () => endOf(name, 0), scope = new CancellationScope()): void => {
    states[name] = { is: 'running' }
    scopes.set(name, scope)
    void carriedOut(scope, name, work)
  }

  /** `made`: attempts that were made before. */
  async function endOf(name: string, made: number, how?: { before: number }): Promise<NodeEnd> {
    const runner = onRunner(its, name, made)
    const answer = await (how
      ? runner.runNodeOnRunner(its.run._id, name, how)
      : runner.runNodeOnRunner(its.run._id, name))
    return afterAnswer(name, answer)
  }

  const afterAnswer = async (name: string, answer: NodeAnswer): Promise<NodeEnd> => {
    const { status, case: chosen } = answer
    return status === 'waiting' ? endOfWait(its, name, answer, awaitDecision) : { status, case: chosen }
  }

  async function carriedOut(
    scope: CancellationScope,
    name: string,
    work: () => Promise<NodeEnd>,
  ): Promise<void> {
    const end = await scope.run(work).catch((error: unknown) => {
      const fault = isCancellation(error) ? null : faultOf(error)
      if (fault) faults[name] = fault
      return records.settleAiRunNode(its.run, name, fault ? 'failed' : 'cancelled', fault)
    })
    states[name] = stateOf(end)
    isNews = true
  }

  /** Until the row has ended, its first node counts as running, and no other one runs. */
  const startRow = (row: Row): void => {
    const [first = ''] = row.names
    const scope = new CancellationScope()
    states[first] = { is: 'running' }
    scopes.set(first, scope)
    void carriedOutInARow(scope, first, row)
  }

  async function carriedOutInARow(scope: CancellationScope, first: string, row: Row): Promise<void> {
    const { names, output: withOutput } = row
    const nodes = names.map((node) => ({ node, within_sec: withinSec(its, node) }))
    const how = { row: { nodes, output: withOutput } }
    try {
      const run = () => onRunnerInARow(its, row).runNodeOnRunner(its.run._id, first, how)
      const answer = await scope.run(run)
      const { passed = 0 } = answer
      for (const name of names.slice(0, passed)) states[name] = { is: 'succeeded' }
      hasOutput = answer.output === true
      start(names[passed] ?? first, () => afterAnswer(names[passed] ?? first, answer), scope)
    } catch (error) {
      const found = await records.lookAtAiRow(its.run, names)
      const { ends, hasBegun, isOver } = found
      if (isOver) {
        states[first] = { is: 'cancelled' }
        return stop('cancelled') // its record says how it has ended
      }
      hasOutput = found.hasOutput
      for (const [at, end] of ends.entries()) states[names[at] ?? first] = stateOf(end)
      const next = names[ends.length]
      const hasStopped = ends.some(({ status, case: chosen }) => status !== 'succeeded' || chosen !== null)
      if (next === undefined || hasStopped) isNews = true
      else start(next, () => again(next, error, hasBegun), scope)
    }
  }

  /** Goes on with the node of a row at which its only attempt ended. One that had not begun has used none. */
  async function again(name: string, error: unknown, hasBegun: boolean): Promise<NodeEnd> {
    if (isCancellation(error)) throw error
    const made = hasBegun ? 1 : 0
    const { most = Infinity, backoff_sec = 0.5 } = its.attempts[name] ?? {}
    if (hasBegun && (isPermanent(error) || made >= most)) throw error
    if (hasBegun) await sleep(backoff_sec * 1000)
    // Counted as the second in any case: the first may still be at work, and must not write then.
    return endOf(name, made, { before: 1 })
  }

  for (;;) {
    isNews = false
    const step = nextStep(its.graph, states, stopped !== null)
    if (step.skip.length > 0) {
      for (const name of step.skip) states[name] = { is: 'skipped' }
      await records.skipAiRunNodes(its.run, step.skip)
      continue // something may have ended meanwhile
    }
    const row = rowOf(its, states, step.start)
    if (row) startRow(row)
    else for (const name of step.start) start(name)
    for (const name of step.cancel) scopes.get(name)?.cancel()
    if (step.end?.status === 'succeeded') break
    if (step.end?.status === 'failed') return failed(step.end.failures, faults)
    if (step.end) return stoppedBy(stopped)
    setCurrentDetails(`running ${namesOf(states, 'running').join(', ')}${row ? ' and what follows' : ''}`)
    await condition(() => isNews)
  }

  if (hasOutput) return { status: 'succeeded' }
  setCurrentDetails('making the output')
  try {
    await output.run(() => onRunner(its, null).giveOutputOnRunner(its.run._id))
    return { status: 'succeeded' }
  } catch (error) {
    if (isCancellation(error)) return stoppedBy(stopped)
    return { status: 'failed', error: { ...faultOf(error), node: null } }
  }
}

/** Null: what starts is no row. */
function rowOf({ graph, waits }: RunToCarryOut, states: States, [first, ...others]: string[]): Row | null {
  const isAlone = others.length === 0 && namesOf(states, 'running').length === 0
  if (first === undefined || !isAlone) return null
  const isMap = (name: string): boolean => waits.maps[name] !== undefined // has attempts of its items
  const row = rowFrom(graph, states, first, (name) => !isMap(name))
  return !isMap(first) && (row.names.length > 1 || row.output) ? row : null
}

const namesOf = (states: States, is: NodeState['is']): string[] =>
  Object.keys(states).filter((name) => states[name]?.is === is)

function stateOf(end: NodeEnd): NodeState {
  if (end.status !== 'succeeded') return { is: end.status }
  return end.case === null ? { is: 'succeeded' } : { is: 'succeeded', case: end.case }
}

function failed([node]: string[], faults: Record<string, Fault>): End {
  const fault = node === undefined ? undefined : faults[node]
  return { status: 'failed', error: { ...(fault ?? internal), node: node ?? null } }
}

const stoppedBy = (stopped: 'cancelled' | 'out of time' | null): End =>
  stopped === 'out of time'
    ? {
        status: 'failed',
        error: { code: 'out_of_time', message: 'The run has used its `wall_sec`', node: null },
      }
    : { status: 'cancelled' }

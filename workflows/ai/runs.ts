import {
  CancellationScope,
  condition,
  isCancellation,
  proxyLocalActivities,
  setCurrentDetails,
  sleep,
} from '@temporalio/workflow'
import type { AiRunActivities, RunToCarryOut } from '../../activities/ai/runs.ts'
import { nextStep, type NodeState, type States } from '../../lib/ai/schedule.ts'
import type { NodeEnd } from '../../lib/runner-protocol.ts'
import { makeApprovals } from './approvals.ts'
import { type Fault, faultOf, internal, onRunner } from './runner.ts'
import { endOfWait } from './waits.ts'

// Runs of AI workflows. Which node starts is decided here, and each node is one activity on its deployment's runner. Values
// never come here: the runner reads and writes them at the internal API.

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
    await records.endAiRun(its.run, await carryOut(its, cancelled))
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

  const stop = (why: 'cancelled' | 'out of time'): void => {
    stopped ??= why
    isNews = true
    output.cancel()
  }
  cancelled.catch(() => stop('cancelled'))
  void sleep(its.wall_sec * 1000).then(() => stop('out of time'))

  const start = (name: string): void => {
    states[name] = { is: 'running' }
    const scope = new CancellationScope()
    scopes.set(name, scope)
    void carriedOut(scope, name)
  }

  async function endOf(name: string): Promise<NodeEnd> {
    const answer = await onRunner(its, name).runNodeOnRunner(its.run._id, name)
    const { status, case: chosen } = answer
    return status === 'waiting' ? endOfWait(its, name, answer, awaitDecision) : { status, case: chosen }
  }

  async function carriedOut(scope: CancellationScope, name: string): Promise<void> {
    const end = await scope
      .run(() => endOf(name))
      .catch((error: unknown) => {
        const fault = isCancellation(error) ? null : faultOf(error)
        if (fault) faults[name] = fault
        return records.settleAiRunNode(its.run, name, fault ? 'failed' : 'cancelled', fault)
      })
    states[name] = stateOf(end)
    isNews = true
  }

  for (;;) {
    isNews = false
    const step = nextStep(its.graph, states, stopped !== null)
    if (step.skip.length > 0) {
      for (const name of step.skip) states[name] = { is: 'skipped' }
      await records.skipAiRunNodes(its.run, step.skip)
      continue // something may have ended meanwhile
    }
    for (const name of step.start) start(name)
    for (const name of step.cancel) scopes.get(name)?.cancel()
    if (step.end?.status === 'succeeded') break
    if (step.end?.status === 'failed') return failed(step.end.failures, faults)
    if (step.end) return stoppedBy(stopped)
    setCurrentDetails(`running ${namesOf(states, 'running').join(', ')}`)
    await condition(() => isNews)
  }

  setCurrentDetails('making the output')
  try {
    await output.run(() => onRunner(its, null).giveOutputOnRunner(its.run._id))
    return { status: 'succeeded' }
  } catch (error) {
    if (isCancellation(error)) return stoppedBy(stopped)
    return { status: 'failed', error: { ...faultOf(error), node: null } }
  }
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

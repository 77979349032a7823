import {
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  condition,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  sleep,
  TimeoutFailure,
} from '@temporalio/workflow'
import type { AiRunActivities, RunToCarryOut } from '../../activities/ai/runs.ts'
import type { RunnerActivities } from '../../activities/runner/nodes.ts'
import { nextStep, type NodeState, type States } from '../../lib/ai/schedule.ts'

// Runs of AI workflows. Which node starts is decided here, and each node is one activity on its deployment's runner. Values
// never come here: the runner reads and writes them at the internal API.

const records = proxyLocalActivities<AiRunActivities>({
  startToCloseTimeout: '10 s', // a few queries, or one transaction
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** Expressions take at most half a minute; the rest is for a busy API. */
const evaluationSec = 120
/** An attempt that uses all its time still says so. */
const marginSec = 10

/** How a node is carried out. `node` null: the run's output. */
const onRunner = ({ deployment_id, attempts }: RunToCarryOut, node: string | null) => {
  const its = node === null ? undefined : attempts[node]
  return proxyActivities<RunnerActivities>({
    taskQueue: `runner-${deployment_id}`,
    startToCloseTimeout: `${(its?.timeout_sec ?? evaluationSec) + marginSec} s`,
    heartbeatTimeout: '10 s', // notices a killed runner; a cancel arrives with an answer to a heartbeat
    summary: node ?? 'output',
    retry: its
      ? {
          maximumAttempts: its.most,
          initialInterval: `${its.backoff_sec} s`,
          backoffCoefficient: 2,
          maximumInterval: `${its.backoff_sec * 1024} s`, // it doubles up to ten times
        }
      : // What only evaluates has the same end each time: it is tried until the run's time is over.
        { initialInterval: '500 ms', maximumInterval: '10 s' },
  })
}

interface Fault {
  code: string
  message: string
}
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

  async function carriedOut(scope: CancellationScope, name: string): Promise<void> {
    const end = await scope
      .run(() => onRunner(its, name).runNodeOnRunner(its.run._id, name))
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

function stateOf(end: Awaited<ReturnType<RunnerActivities['runNodeOnRunner']>>): NodeState {
  if (end.status !== 'succeeded') return { is: end.status }
  return end.case === null ? { is: 'succeeded' } : { is: 'succeeded', case: end.case }
}

const internal: Fault = { code: 'internal', message: 'The platform failed; its operators can see why' }

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

/** What the workflow's author sees. Others are `internal`. */
function faultOf(error: unknown): Fault {
  const cause = error instanceof ActivityFailure ? error.cause : error
  if (cause instanceof TimeoutFailure)
    return cause.timeoutType === 'HEARTBEAT'
      ? { code: 'runner_lost', message: 'The runner ended during the last attempt' }
      : { code: 'timed_out', message: 'The last attempt took longer than its `timeout_sec`' }
  if (cause instanceof ApplicationFailure && cause.type && /^[a-z][a-z0-9_]*$/.test(cause.type))
    return { code: cause.type, message: cause.message }
  return internal
}

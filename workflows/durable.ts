import {
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  ContinueAsNew,
  isCancellation,
  makeContinueAsNewFunc,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  TimeoutFailure,
  workflowInfo,
} from '@temporalio/workflow'
import type { OperationActivities, Outcome } from '../activities/operations.ts'
import { workflowTaskTimeout } from '../lib/operation-workflows.ts'
import type { ProblemDocument } from '../lib/problem.ts'
import { type CarryOut, makeCarryOut } from './carry-out.ts'
import { endAs } from './ends.ts'

// Two kinds of steps.
// A local activity is a short read or write of MongoDB: one or two queries, or one transaction. The workflow's own
// worker runs it, without a round trip through a queue. It sends no heartbeats and restarts if that worker is killed.
// Everything else is an ordinary activity: work on a host, a wait, anything longer than a second or two. It has a
// queue, a retry policy and heartbeats, so a killed worker is noticed in seconds. Both kinds may run more than once,
// so both must be idempotent.

// Retried until MongoDB answers. Ten seconds without an answer mean a broken connection, not slow work.
const records = proxyLocalActivities<OperationActivities>({
  startToCloseTimeout: '10 s',
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

// Waits for another workflow's undo, which may have to wait for its host to come back.
const { awaitSuperseded } = proxyActivities<OperationActivities>({
  startToCloseTimeout: '1 day',
  heartbeatTimeout: '10 s', // detects a killed worker soon
})

/** What a workflow works with. */
export interface Work<Input> {
  /** The resource's id. */
  id: string
  operation_id: string
  input: Input
  /** The resource's status when the operation was accepted. */
  before: string
  /** The value that the previous run passed to `renew`. */
  carried: unknown
  /**
   * Registers the undo of the next step. Call it before the step, because a failed step may be half done. An undo
   * must succeed even if its step never ran. When the story throws, the undos run in reverse order.
   */
  undo: (step: () => Promise<unknown>) => void
  /**
   * Runs the point of no return, such as the write that says where a disk is from now on. It is not interrupted by a
   * cancel. Once it has succeeded the undos registered so far are dropped: a later failure or cancel leaves what they
   * would take back.
   */
  settle: (step: () => Promise<unknown>) => Promise<void>
  carryOut: CarryOut
  /**
   * Registers work that nobody waits for. It runs once the operation has succeeded and is recorded, so its failure changes
   * nothing: whatever it leaves must be done by a later run of it.
   */
  afterwards: (step: () => Promise<unknown>) => void
  /** Shows the next step, in plain words, on the operation and in the Temporal UI. */
  progress: (step: string) => void
  /**
   * If the history is long, restarts the story with an empty history. A story that loops over many items calls it
   * between items, when there is nothing to undo, and reads from the records what is left to do.
   */
  renew: (carried?: unknown) => Promise<void>
}

interface Rules {
  /** The status after a failure. Default: the status before the operation. */
  onFailure?: string
  /** After a cancel the status is the one before the operation, whatever `onFailure` says. */
  cancelRestores?: boolean
  /** The status after a cancel. Default: that after a failure. */
  onCancel?: string
  /** A cancel is ignored once the story has begun. For a story that has nothing to go back to; the state table refuses the cancel. */
  final?: boolean
}

/** In events. Temporal warns at 10,240 and terminates a workflow at 51,200. */
const longHistory = 1_000

/** What a run passes to the run that continues it. */
interface Continued {
  children: number
  carried: unknown
}

/**
 * Makes a workflow of the story of one operation: takes the operation up, runs the steps, undoes them last
 * first when one fails or it is cancelled, and records the end, which is then the workflow's own. A story never touches the
 * operation itself.
 */
export const durable =
  <Input = Record<string, never>>(story: (work: Work<Input>) => Promise<Outcome>, rules: Rules = {}) =>
  async (
    operationId: string,
    { children, carried }: Continued = { children: 0, carried: null },
  ): Promise<void> => {
    const operation = await CancellationScope.nonCancellable(() => records.beginOperation(operationId))
    if (!operation) return
    if ('ended' in operation) return endAs(operation.ended)

    const undos: (() => Promise<unknown>)[] = []
    const undo: Work<Input>['undo'] = (step) => undos.push(step)
    const later: (() => Promise<unknown>)[] = []
    const counted = { children }
    let noted = Promise.resolve()
    const progress = (step: string): void => {
      setCurrentDetails(step)
      const note = () => CancellationScope.nonCancellable(() => records.noteStep(operationId, step))
      noted = noted.then(note) // in order, so that the last step stays
    }
    const work: Work<Input> = {
      id: operation.resource_id,
      operation_id: operationId,
      input: operation.input as Input,
      before: operation.before,
      carried,
      undo,
      async settle(step) {
        await CancellationScope.nonCancellable(step)
        undos.length = 0
      },
      carryOut: makeCarryOut(operationId, undo, counted),
      afterwards: (step) => later.push(step),
      progress,
      async renew(next = null) {
        if (workflowInfo().historyLength < longHistory) return
        await noted
        const again = makeContinueAsNewFunc<Workflow>({ workflowTaskTimeout })
        await again(operationId, { children: counted.children, carried: next })
      },
    }
    const steps = rules.final
      ? new CancellationScope({ cancellable: false })
      : new CancellationScope({ cancellable: true })
    try {
      const outcome = await steps.run(async () => {
        if (operation.supersedes) await awaitSuperseded(operation.supersedes)
        // Cancelled before it began: the story still runs up to its first step, which registers its undos.
        if (operation.cancelled) steps.cancel()
        return story(work)
      })
      await CancellationScope.nonCancellable(() => records.operationSucceeded(operationId, outcome))
    } catch (error) {
      if (error instanceof ContinueAsNew) throw error
      const end = await CancellationScope.nonCancellable(async () => {
        if (undos.length) progress('cleaning up')
        const left = await runAll(undos.toReversed())
        const isCancelled = isCancellation(error) || (steps.consideredCancelled && isRepeated(error))
        const ending = isCancelled ? 'cancelled' : 'failed'
        const goesBack = ending === 'cancelled' && rules.cancelRestores
        const after = (ending === 'cancelled' && rules.onCancel) || rules.onFailure
        const status = left.length ? 'error' : goesBack ? null : (after ?? null)
        const shown = {
          ...(isCancelled ? cancelled : problemOf(error)),
          ...(left.length && { not_undone: left }),
        }
        await records.operationFailed(operationId, ending, shown, status)
        return { state: ending, code: shown.code } as const
      })
      return endAs(end)
    }
    await runAll(later)
    endAs({ state: 'succeeded', code: null })
  }

type Workflow = (operationId: string, continued?: Continued) => Promise<void>

/** Runs every step, even if others fail. Returns the problems of those that failed. */
async function runAll(steps: (() => Promise<unknown>)[]): Promise<ProblemDocument[]> {
  const left: ProblemDocument[] = []
  for (const step of steps) {
    try {
      await step()
    } catch (error) {
      left.push(problemOf(error))
    }
  }
  return left
}

/**
 * Whether an activity failed by what it repeats: a fault that may pass, or a killed worker. Temporal does not repeat an
 * activity that is to be cancelled, and ends it by the fault.
 */
const isRepeated = (error: unknown): boolean =>
  error instanceof ActivityFailure &&
  (error.cause instanceof TimeoutFailure ||
    (error.cause instanceof ApplicationFailure && !error.cause.nonRetryable))

/** What is repeated for a while, by the fault's code, and what the tenant reads when it did not pass. */
const lasting: Record<string, string> = {
  engine_unavailable: 'The engine on the host did not answer in time',
  database_refused: 'The database refused it each time',
}

/** The problem to show the tenant: a cancel, an activity's permanent or lasting fault, a timeout. Others are `internal`. */
function problemOf(error: unknown): ProblemDocument {
  if (isCancellation(error)) return cancelled
  const cause = error instanceof ActivityFailure ? error.cause : error
  if (cause instanceof TimeoutFailure) return problem('timed_out', 'The host did not answer in time')
  if (cause instanceof ApplicationFailure && cause.nonRetryable && cause.type && cause.type !== 'internal') {
    return problem(cause.type, cause.message)
  }
  const lasts = cause instanceof ApplicationFailure && lasting[cause.type ?? '']
  if (lasts) return problem(String(cause.type), lasts)
  return problem('internal', 'The platform failed; its operators can see why')
}

const problem = (code: string, detail: string): ProblemDocument => ({
  type: `urn:keelson:problem:${code}`,
  title: 'The operation did not succeed',
  detail,
  status: code === 'internal' ? 500 : 409,
  code,
})

const cancelled = problem('cancelled', 'The operation was cancelled')

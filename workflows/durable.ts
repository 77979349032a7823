import {
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
  setCurrentDetails,
  TimeoutFailure,
} from '@temporalio/workflow'
import type { OperationActivities, Outcome } from '../activities/operations.ts'
import type { ProblemDocument } from '../lib/problem.ts'

// Short writes to MongoDB, made by the worker that runs the workflow: no round trip through a queue. They
// are tried until MongoDB answers; a second's silence is a broken connection there, not slow work.
const records = proxyLocalActivities<OperationActivities>({
  startToCloseTimeout: '10 s',
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

// Waits for another workflow's undo, which may take as long as its host is away.
const { awaitSuperseded } = proxyActivities<OperationActivities>({
  startToCloseTimeout: '1 day',
  heartbeatTimeout: '10 s', // noticed soon when the worker that waits is killed
})

/** What a workflow works with. */
export interface Work<Input> {
  /** The resource's id. */
  id: string
  operation_id: string
  input: Input
  /** The resource's status when the operation was accepted. */
  before: string
  /** Registers how to take back the step that follows. Before the step, since it may be half done when it fails. */
  undo: (step: () => Promise<unknown>) => void
  /** The step after which there is no way back: what was registered is undone no more, and nothing is called off. */
  settle: (step: () => Promise<unknown>) => Promise<void>
  /** Says in plain words what comes next, to the operation's readers and in the Temporal UI. */
  progress: (step: string) => void
}

interface Rules {
  /** The status after a failure. Without it, the resource goes back to what it was. */
  onFailure?: string
  /** Once begun it is carried through: there is no way back. */
  final?: boolean
}

/**
 * Makes a workflow of the story of one operation: takes the operation up, runs the steps, undoes them last
 * first when one fails or it is called off, and records the end. A story never touches the operation itself.
 */
export const durable =
  <Input = Record<string, never>>(story: (work: Work<Input>) => Promise<Outcome>, rules: Rules = {}) =>
  async (operationId: string): Promise<void> => {
    const operation = await CancellationScope.nonCancellable(() => records.beginOperation(operationId))
    if (!operation) return

    const undos: (() => Promise<unknown>)[] = []
    const progress = (step: string): void => {
      setCurrentDetails(step)
      void CancellationScope.nonCancellable(() => records.noteStep(operationId, step))
    }
    const work: Work<Input> = {
      id: operation.resource_id,
      operation_id: operationId,
      input: operation.input as Input,
      before: operation.before,
      undo: (step) => undos.push(step),
      async settle(step) {
        await CancellationScope.nonCancellable(step)
        undos.length = 0
      },
      progress,
    }
    const steps = rules.final
      ? new CancellationScope({ cancellable: false })
      : new CancellationScope({ cancellable: true })
    try {
      const outcome = await steps.run(async () => {
        if (operation.supersedes) await awaitSuperseded(operation.supersedes)
        // Called off before it began: the story still runs into its first step, so that its undos are known.
        if (operation.cancelled) steps.cancel()
        return story(work)
      })
      await CancellationScope.nonCancellable(() => records.operationSucceeded(operationId, outcome))
    } catch (error) {
      await CancellationScope.nonCancellable(async () => {
        if (undos.length) progress('cleaning up')
        const left = await runAll(undos.toReversed())
        const ending = isCancellation(error) ? 'cancelled' : 'failed'
        const status = left.length ? 'error' : (rules.onFailure ?? null)
        await records.operationFailed(operationId, ending, problemOf(error, left), status)
      })
    }
  }

/** Runs every undo, whatever becomes of the others. Returns why some could not. */
async function runAll(undos: (() => Promise<unknown>)[]): Promise<ProblemDocument[]> {
  const left: ProblemDocument[] = []
  for (const undo of undos) {
    try {
      await undo()
    } catch (error) {
      left.push(problemOf(error))
    }
  }
  return left
}

/** What went wrong, for the tenant: the permanent fault of an activity, or that a host did not answer. */
function problemOf(error: unknown, left: ProblemDocument[] = []): ProblemDocument {
  if (left.length) return { ...problemOf(error), not_undone: left }
  if (isCancellation(error)) return problem('cancelled', 'The operation was cancelled')
  const cause = error instanceof ActivityFailure ? error.cause : error
  if (cause instanceof TimeoutFailure) return problem('timed_out', 'The host did not answer in time')
  if (cause instanceof ApplicationFailure && cause.nonRetryable && cause.type) {
    return problem(cause.type, cause.message)
  }
  return problem('internal', 'The platform failed; its operators can see why')
}

const problem = (code: string, detail: string): ProblemDocument => ({
  type: `urn:keelson:problem:${code}`,
  title: 'The operation did not succeed',
  detail,
  status: code === 'internal' ? 500 : 409,
  code,
})

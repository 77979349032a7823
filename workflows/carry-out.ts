import { WorkflowExecutionAlreadyStartedError } from '@temporalio/common'
import {
  ActivityFailure,
  ApplicationFailure,
  CancellationScope,
  CancelledFailure,
  ChildWorkflowFailure,
  proxyActivities,
  proxyLocalActivities,
  startChild,
} from '@temporalio/workflow'
import type { ChildActivities } from '../activities/child-operations.ts'
import type { OperationActivities } from '../activities/operations.ts'
import { type Startable, startOptions, workflowType } from '../lib/operation-workflows.ts'

// Child operations. A child is an ordinary operation: accepted by the same rules, locked, audited and shown. Its
// workflow is a child workflow of its parent's. Temporal tells the parent when it ends, so waiting for hundreds of
// children holds no worker slot and no connection.

const records = proxyLocalActivities<ChildActivities>({
  startToCloseTimeout: '10 s', // one transaction
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

// Waits for a workflow that is not a child of this one. It may have to wait for its host to come back.
const { awaitOperation } = proxyActivities<OperationActivities>({
  startToCloseTimeout: '1 day',
  heartbeatTimeout: '10 s', // detects a killed worker soon
  retry: { initialInterval: '500 ms', maximumInterval: '10 s' },
})

/** The resource to act on. Without `id`, the child creates one. */
export interface Target {
  kind: string
  id?: string
}

export interface ChildRules {
  /** The child's key, unique in its parent. Default: its position in the order of calls. */
  key?: string
  /** Undoes the child, given its resource's id. Default: delete the resource if the child created it. Null: no undo. */
  undo?: ((id: string) => Promise<unknown>) | null
  /** Waits while another operation holds the resource. Default: fail with `operation_in_progress`. */
  waitsForOthers?: boolean
}

/**
 * Carries out another operation as a part of this one, and returns the id of its resource. Throws an
 * ApplicationFailure when the child is refused or fails, with the `code` of its problem as `type`: a story may catch
 * it and go on. When the parent is cancelled the child is cancelled too, and the parent waits until the child has
 * undone its steps.
 */
export type CarryOut = (target: Target, verb: string, input?: object, rules?: ChildRules) => Promise<string>

/** `counted.children` is the number of children keyed by position so far. */
export function makeCarryOut(
  operationId: string,
  undo: (step: () => Promise<unknown>) => void,
  counted: { children: number },
): CarryOut {
  const carryOut: CarryOut = async ({ kind, id }, verb, input = {}, rules = {}) => {
    const { key = `#${++counted.children}`, waitsForOthers = false } = rules
    const scope = CancellationScope.current()
    const parent = { id: operationId, key }
    const child = await accepted(scope, waitsForOthers, () =>
      records.acceptChild(parent, { kind, id: id ?? null }, verb, input),
    )
    const isNew = child.resource_id !== id // created, or copied from the resource with that id
    const { undo: takeBack = isNew ? removal(kind, key) : null } = rules
    if (takeBack) undo(() => takeBack(child.resource_id))
    await CancellationScope.nonCancellable(() => endOf(child, scope))
    stopIfCancelled(scope)
    const { state, error } = await records.childOutcome(child._id)
    if (state !== 'succeeded')
      throw ApplicationFailure.nonRetryable(error?.detail ?? error?.title ?? state, error?.code ?? state)
    return child.resource_id
  }

  const removal = (kind: string, key: string) => async (id: string) => {
    try {
      await carryOut({ kind, id }, 'delete', {}, { key: `undo ${key}`, waitsForOthers: true })
    } catch (error) {
      if (!isFailure(error, 'not_found')) throw error
    }
  }

  return carryOut
}

/** True if a child was refused or failed, with this code if one is given. */
export const isFailure = (error: unknown, code?: string): error is ApplicationFailure =>
  error instanceof ApplicationFailure && (code === undefined || error.type === code)

/** An acceptance is not cancelled half-way: the parent could not tell whether the child exists. */
async function accepted(
  scope: CancellationScope,
  waitsForOthers: boolean,
  accept: () => ReturnType<ChildActivities['acceptChild']>,
): Promise<Startable> {
  for (;;) {
    stopIfCancelled(scope)
    const answer = await CancellationScope.nonCancellable(() => accept().catch(throwCause))
    if ('child' in answer) return answer.child
    if (!waitsForOthers)
      throw ApplicationFailure.nonRetryable('Another operation is in progress', 'operation_in_progress')
    await awaitOperation(answer.held_by)
  }
}

/** Starts the child's workflow and waits for its end. Cancels the child when the scope is cancelled. */
async function endOf(child: Startable, scope: CancellationScope): Promise<void> {
  let ended = false
  const passOn = async (): Promise<void> => (ended ? undefined : records.cancelChild(child._id))
  if (scope.cancellable) void scope.cancelRequested.catch(passOn)
  try {
    const workflow = await startChild(workflowType(child), {
      ...startOptions(child),
      // A child continues if an operator terminates its parent: it must still release its resource.
      parentClosePolicy: 'ABANDON',
    })
    await workflow.result()
  } catch (error) {
    // The dispatcher starts an operation left for a minute, for example while this workflow had no worker.
    if (error instanceof WorkflowExecutionAlreadyStartedError) await awaitOperation(child._id)
    else if (!(error instanceof ChildWorkflowFailure)) throw error // terminated: its operation says so
  } finally {
    ended = true
  }
}

function stopIfCancelled(scope: CancellationScope): void {
  if (scope.consideredCancelled) throw new CancelledFailure('The operation was cancelled')
}

function throwCause(error: unknown): never {
  throw error instanceof ActivityFailure && error.cause instanceof ApplicationFailure ? error.cause : error
}

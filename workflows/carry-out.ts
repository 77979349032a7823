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

// An operation made of operations. A child is an operation like any other: accepted by the same rules, locked, audited, shown. Its
// workflow runs as a child workflow of its parent's. So Temporal tells the parent when it ends, and hundreds of children that are
// waited for hold no slot of a worker and no connection.

const records = proxyLocalActivities<ChildActivities>({
  startToCloseTimeout: '10 s', // one transaction
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

// Waits for a workflow that is no child of this one, which may take as long as its host is away.
const { awaitOperation } = proxyActivities<OperationActivities>({
  startToCloseTimeout: '1 day',
  heartbeatTimeout: '10 s', // noticed soon when the worker that waits is killed
  retry: { initialInterval: '500 ms', maximumInterval: '10 s' },
})

/** A resource, or with `kind` alone one that is to be created. */
export interface Target {
  kind: string
  id?: string
}

export interface ChildRules {
  /** Names the child among those of its parent. Without it the child is named by its place in the order of calls. */
  key?: string
  /** Takes the child's effect back, given its resource's id. Without it a creation is undone by deletion, and nothing else is. */
  undo?: ((id: string) => Promise<unknown>) | null
  /** Waits for the operation that holds the resource. Without it the child is then refused, as `operation_in_progress`. */
  waitsForOthers?: boolean
}

/**
 * Carries out another operation as a part of this one, and returns the id of its resource. Throws an ApplicationFailure when the
 * child is refused or fails, with the `code` of its problem as `type`: a story may catch it and go on. When the parent is cancelled
 * the child is cancelled too, and the parent waits until the child has undone its steps.
 */
export type CarryOut = (target: Target, verb: string, input?: object, rules?: ChildRules) => Promise<string>

/** `counted`: how many children were named by their place so far. */
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
    const isNew = child.resource_id !== id // made of nothing, or of the one with that id
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

/** Whether a child was refused or failed, and by this code where one is given. */
export const isFailure = (error: unknown, code?: string): error is ApplicationFailure =>
  error instanceof ApplicationFailure && (code === undefined || error.type === code)

/** An acceptance is never given up half-way: nobody would know whether there is a child. */
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

/** Starts the child's workflow and waits for its end; passes on that the scope is cancelled. */
async function endOf(child: Startable, scope: CancellationScope): Promise<void> {
  let ended = false
  const passOn = async (): Promise<void> => (ended ? undefined : records.cancelChild(child._id))
  if (scope.cancellable) void scope.cancelRequested.catch(passOn)
  try {
    const workflow = await startChild(workflowType(child), {
      ...startOptions(child),
      // A child lives on if an operator terminates its parent: it holds a resource that it must let go.
      parentClosePolicy: 'ABANDON',
    })
    await workflow.result()
  } catch (error) {
    // The dispatcher starts what was left for a minute, as while this workflow had no worker.
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

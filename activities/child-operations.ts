import { ApplicationFailure } from '@temporalio/activity'
import type { Client } from '@temporalio/client'
import { OperationInProgress, Problem, type ProblemDocument } from '../lib/problem.ts'
import type { Startable } from '../lib/operation-workflows.ts'
import { acceptanceOf } from '../models/acceptance.ts'
import { acceptChild } from '../models/child-operations.ts'
import '../models/index.ts'
import { findOperation, type OperationState, type Parent } from '../models/operations.ts'
import { requestCancel } from '../models/operation-cancels.ts'
import { cancelOperation } from '../workflows/starters.ts'
import { permanently } from './failures.ts'

/** The activities with which an operation runs children. */
export const makeChildActivities = ({ client }: { client: Client }) => ({
  /**
   * Accepts the child by the rules of the API, or finds it by its key. If another operation holds the resource, returns
   * that operation's id instead.
   */
  async acceptChild(
    parent: Parent,
    { kind, id }: { kind: string; id: string | null },
    verb: string,
    input: object,
  ): Promise<{ child: Startable } | { held_by: string }> {
    const accept = acceptanceOf(kind, verb)
    const asked = id === null ? { input } : { id, input }
    return permanently(async () => {
      try {
        return { child: startable(await acceptChild(parent, { kind, id }, (by) => accept(by, asked))) }
      } catch (error) {
        if (!(error instanceof OperationInProgress)) throw error
        return { held_by: String(error.extensions['operation_id']) }
      }
    })
  },

  /** The outcome of a child whose workflow has ended. */
  async childOutcome(id: string): Promise<{ state: OperationState; error: ProblemDocument | null }> {
    const child = await findOperation(id)
    if (!child) throw ApplicationFailure.nonRetryable('The operation is gone', 'not_found')
    // An operator terminated its workflow: the dispatcher closes the operation soon, and a retry sees that.
    if (child.open) throw new Error(`the workflow of ${id} ended without closing it`)
    return { state: child.state, error: child.error }
  },

  cancelChild: (id: string): Promise<void> => cancelIfOpen(client, id),
})

export type ChildActivities = ReturnType<typeof makeChildActivities>

/** Cancels an operation. Does nothing if it has ended; one that cannot be cancelled runs to its end. */
export async function cancelIfOpen(client: Client, id: string): Promise<void> {
  const operation = await findOperation(id)
  if (!operation) return
  try {
    await requestCancel(operation.tenant_id, id)
    await cancelOperation(client, operation.workflow_id)
  } catch (error) {
    if (!(error instanceof Problem)) throw error
  }
}

const startable = (operation: Startable): Startable => {
  const { _id, tenant_id, resource_kind, resource_id, resource_name, verb, workflow_id } = operation
  return { _id, tenant_id, resource_kind, resource_id, resource_name, verb, workflow_id }
}

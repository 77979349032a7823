import { CancelledFailure, Context } from '@temporalio/activity'
import { type Client, WorkflowNotFoundError } from '@temporalio/client'
import type { ProblemDocument } from '../lib/problem.ts'
import { nextInLine } from '../models/operation-lines.ts'
import * as operations from '../models/operations.ts'
import { cancelOperation, startOperation } from '../workflows/starters.ts'

/** The result of a successful operation: the resource's status and changed fields, or its deletion. */
export type Outcome = { status: string; [field: string]: unknown } | 'deleted'

/** How an operation or a run has ended. `code`: that of its error. */
export interface Ended {
  state: 'succeeded' | 'failed' | 'cancelled'
  code: string | null
}

/**
 * How an operation or a run stands when its workflow begins. A cancel may have come before the workflow: Temporal is told of it,
 * since it takes no other end as a cancel.
 */
export async function standingOf(
  client: Client,
  workflowId: string,
  of: { open?: true; state: string; cancel_requested_at: Date | null; error: { code: string } | null },
): Promise<{ cancelled: boolean; ended: Ended | null }> {
  const cancelled = of.open ? of.cancel_requested_at !== null : of.state === 'cancelled'
  if (cancelled) await cancelOperation(client, workflowId)
  return {
    cancelled,
    ended: of.open ? null : { state: of.state as Ended['state'], code: of.error?.code ?? null },
  }
}

interface Begun {
  resource_id: string
  input: Record<string, unknown>
  before: string
  supersedes: string | null
  cancelled: boolean
}

/** The activities with which a workflow begins and closes its operation. */
export function makeOperationActivities({ client }: { client: Client }) {
  /** Closes the operation, and starts the next one of its line. What is not started here, the dispatcher starts. */
  async function end(id: string, ending: operations.Ending): Promise<void> {
    const ended = await operations.endOperation(id, ending)
    const next = ended && (await nextInLine(ended))
    if (next) await startOperation(client, next).catch(() => {})
  }

  return {
    /** `ended`: it has ended, and its workflow has nothing to do. Null: it is gone. */
    async beginOperation(id: string): Promise<Begun | { ended: Ended } | null> {
      const begun = await operations.beginOperation(id)
      if (!begun) return null
      const { cancelled, ended } = await standingOf(client, begun.workflow_id, begun)
      if (ended) return { ended }
      return {
        resource_id: begun.resource_id,
        input: begun.input,
        before: begun.before.status ?? 'creating',
        supersedes: begun.supersedes,
        cancelled,
      }
    },

    noteStep: operations.noteStep,

    /** Cancels the workflow of the operation that this one superseded, and waits until it has undone its steps. */
    async awaitSuperseded(operationId: string): Promise<void> {
      const workflowId = await operations.workflowOf(operationId)
      if (!workflowId) return
      await cancelOperation(client, workflowId)
      await endOf(client, workflowId)
    },

    /** Waits until an operation and its workflow have ended. Starts the workflow if it has not started. */
    async awaitOperation(id: string): Promise<void> {
      const operation = await operations.findOperation(id)
      if (!operation) return
      if (operation.open) await startOperation(client, operation)
      await endOf(client, operation.workflow_id)
      const after = await operations.findOperation(id)
      // An operator terminated its workflow: the dispatcher closes the operation soon, and a retry sees that.
      if (after?.open) throw new Error(`the workflow of ${id} ended without closing it`)
    },

    async operationSucceeded(id: string, outcome: Outcome): Promise<void> {
      if (outcome === 'deleted') return end(id, { state: 'succeeded', deleted: true })
      const { status, ...set } = outcome
      await end(id, { state: 'succeeded', status, set })
    },

    async operationFailed(
      id: string,
      state: 'failed' | 'cancelled',
      error: ProblemDocument,
      status: string | null,
    ): Promise<void> {
      await end(id, { state, error, ...(status ? { status } : {}) })
    },
  }
}

export type OperationActivities = ReturnType<typeof makeOperationActivities>

async function endOf(client: Client, workflowId: string): Promise<void> {
  try {
    await Promise.race([client.workflow.getHandle(workflowId).result(), Context.current().cancelled])
  } catch (error) {
    if (error instanceof CancelledFailure) throw error
    // Not found: it never started, and will not, since its operation is closed. Failed: it has ended.
    if (!(error instanceof WorkflowNotFoundError) && !isEnded(error)) throw error
  }
}

const isEnded = (error: unknown): boolean => error instanceof Error && error.name === 'WorkflowFailedError'

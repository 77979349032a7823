import { setTimeout } from 'node:timers/promises'
import { type Client, WorkflowNotFoundError } from '@temporalio/client'
import type { Logger } from '../lib/log.ts'
import { Problem } from '../lib/problem.ts'
import * as operations from '../models/operations.ts'
import { cancelOperation, startOperation } from '../workflows/starters.ts'

const everyMs = 1_000
// The API starts an operation as soon as it is accepted. One that is not started after this time needs the dispatcher.
const undispatchedAfterMs = 1_000
// Longer than a new workflow needs to appear as running; operations open longer than this are checked.
const lookAfterMs = 60_000
const lookEveryMs = 30_000
const batch = 200

/**
 * Carries on accepted operations: starts those that the API did not start (it was killed, or Temporal was down),
 * repeats cancels, and closes operations whose workflow is gone. Every worker runs one; starting, cancelling and
 * closing are idempotent.
 */
export function startDispatcher(client: Client, log: Logger): { stop(): Promise<void> } {
  const stopping = new AbortController()
  let lookedAt = 0
  const round = async (): Promise<void> => {
    for (const operation of await operations.findUndispatched(undispatchedAfterMs, batch)) {
      log.info(
        { operation_id: operation._id, workflow_id: operation.workflow_id },
        'starting a left operation',
      )
      await startOperation(client, operation)
      await operations.markDispatched([operation._id])
    }
    for (const operation of await operations.findCancelling(undispatchedAfterMs)) {
      await cancelOperation(client, operation.workflow_id)
    }
    if (Date.now() - lookedAt < lookEveryMs) return
    lookedAt = Date.now()
    for (const operation of await operations.findOpenSince(lookAfterMs)) await look(client, operation, log)
  }
  const running = (async () => {
    while (!stopping.signal.aborted) {
      try {
        await round()
      } catch (error) {
        // MongoDB or Temporal is away; the next round retries.
        log.warn({ err: error }, 'dispatcher round failed')
      }
      await setTimeout(everyMs, null, { signal: stopping.signal }).catch(() => {})
    }
  })()
  return {
    async stop() {
      stopping.abort()
      await running
    },
  }
}

/** Closes an open operation whose workflow was terminated; restarts one whose workflow Temporal has lost. */
async function look(client: Client, operation: operations.OperationDocument, log: Logger): Promise<void> {
  try {
    const { status } = await client.workflow.getHandle(operation.workflow_id).describe()
    if (status.name === 'RUNNING') return
    log.error(
      { operation_id: operation._id, status: status.name },
      'a workflow ended without closing its operation',
    )
    const error = new Problem(
      500,
      'internal',
      'The work was ended by an operator, or failed inside',
    ).document()
    await operations.endOperation(operation._id, { state: 'failed', error, status: 'error' })
  } catch (error) {
    if (!(error instanceof WorkflowNotFoundError)) throw error
    log.error({ operation_id: operation._id }, 'Temporal has lost a workflow; starting it anew')
    await startOperation(client, operation)
  }
}

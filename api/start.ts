import type { Client } from '@temporalio/client'
import type { Logger } from '../lib/log.ts'
import { markDispatched, type OperationDocument } from '../models/operations.ts'
import { startOperation } from '../workflows/starters.ts'

// Batches the marks of started operations into one write. Shorter than the dispatcher waits before it looks for them.
const markEveryMs = 200

/**
 * Starts accepted operations without delaying the answer. If Temporal is down or this process is killed, a worker's
 * dispatcher starts the rest.
 */
export function makeStarter(client: Client, log: Logger): (operation: OperationDocument) => void {
  let started: string[] = []
  const mark = (): void => {
    const ids = started
    started = []
    markDispatched(ids).catch((error: unknown) => log.warn({ err: error }, 'not marked as started'))
  }
  return (operation) => {
    const noteStarted = (): void => {
      if (started.push(operation._id) === 1) setTimeout(mark, markEveryMs)
    }
    startOperation(client, operation)
      .then(noteStarted)
      .catch((error: unknown) => {
        const ids = { operation_id: operation._id, workflow_id: operation.workflow_id }
        log.warn({ err: error, ...ids }, 'not started; the dispatcher will')
      })
  }
}

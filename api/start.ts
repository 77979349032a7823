import type { Client } from '@temporalio/client'
import type { Logger } from '../lib/log.ts'
import { markDispatched, type OperationDocument } from '../models/operations.ts'
import { startOperation } from '../workflows/starters.ts'

// Started operations are marked together: one write for many. Sooner than the dispatcher looks for them.
const markEveryMs = 200

/**
 * Starts what was accepted, without the answer waiting for it. Should Temporal be down, or this process be
 * killed, a worker's dispatcher starts what is left.
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

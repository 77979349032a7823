import type { Client } from '@temporalio/client'
import { runWorkflowId } from '../lib/operation-workflows.ts'
import type { Logger } from '../lib/log.ts'
import { type AiRunDocument, markRunsDispatched } from '../models/ai/runs.ts'
import { markDispatched } from '../models/operation-dispatch.ts'
import type { OperationDocument } from '../models/operations.ts'
import { startOperation, startRun } from '../workflows/starters.ts'

// Starts what was accepted without delaying the answer. If Temporal is down or this process is killed, a worker's
// dispatcher starts the rest.

// Batches the marks of what was started into one write. Shorter than the dispatcher waits before it looks for them.
const markEveryMs = 200

/** Starts accepted operations. */
export const makeStarter = (client: Client, log: Logger): ((operation: OperationDocument) => void) =>
  starting(
    (operation: OperationDocument) => startOperation(client, operation),
    markDispatched,
    ({ workflow_id }) => workflow_id,
    log,
  )

/** Starts accepted runs of AI workflows. */
export const makeRunStarter = (client: Client, log: Logger): ((run: AiRunDocument) => void) =>
  starting(
    (run: AiRunDocument) => startRun(client, run),
    markRunsDispatched,
    ({ _id }) => runWorkflowId(_id),
    log,
  )

function starting<T extends { _id: string }>(
  start: (thing: T) => Promise<unknown>,
  markStarted: (ids: string[]) => Promise<void>,
  workflowOf: (thing: T) => string,
  log: Logger,
): (thing: T) => void {
  let started: string[] = []
  const mark = (): void => {
    const ids = started
    started = []
    markStarted(ids).catch((error: unknown) =>
      log.warn({ err: error }, 'started work was not marked as started'),
    )
  }
  return (thing) => {
    const noteStarted = (): void => {
      if (started.push(thing._id) === 1) setTimeout(mark, markEveryMs)
    }
    start(thing)
      .then(noteStarted)
      .catch((error: unknown) =>
        log.warn(
          { err: error, workflow_id: workflowOf(thing) },
          'a workflow was not started; the dispatcher will start it',
        ),
      )
  }
}

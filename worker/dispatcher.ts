import { setTimeout } from 'node:timers/promises'
import { type Client, WorkflowNotFoundError } from '@temporalio/client'
import { runWorkflowId } from '../lib/operation-workflows.ts'
import type { Logger } from '../lib/log.ts'
import { Problem } from '../lib/problem.ts'
import { findUntoldDecisions, markDecisionTold } from '../models/ai/decisions.ts'
import { endRun } from '../models/ai/run-ends.ts'
import * as runs from '../models/ai/runs.ts'
import { takeLeftInLines, waitsInLine } from '../models/operation-lines.ts'
import * as dispatch from '../models/operation-dispatch.ts'
import * as operations from '../models/operations.ts'
import { cancelOperation, startOperation, startRun, tellOfDecision } from '../workflows/starters.ts'

const everyMs = 1_000
// The API starts what it has accepted at once. What is not started after this time needs the dispatcher.
const undispatchedAfterMs = 1_000
// Longer than a new workflow needs to appear as running; what is open longer than this is checked.
const lookAfterMs = 60_000
const lookEveryMs = 30_000
const batch = 200

const endedInside = 'An operator ended the work, or the platform failed'

/** What is accepted, and carried out by a workflow: operations, and runs of AI workflows. */
interface Kind<T extends { _id: string }> {
  name: string
  undispatched: (olderMs: number, limit: number) => Promise<T[]>
  markDispatched: (ids: string[]) => Promise<void>
  cancelling: (olderMs: number) => Promise<T[]>
  openSince: (olderMs: number) => Promise<T[]>
  workflowOf: (thing: T) => string
  start: (client: Client, thing: T) => Promise<void>
  /** Its workflow ended without closing it. */
  fail: (thing: T) => Promise<void>
  /** Whether it is not to be started yet. */
  waits: (thing: T) => Promise<boolean>
}

const operationKind: Kind<operations.OperationDocument> = {
  name: 'operation',
  undispatched: dispatch.findUndispatched,
  markDispatched: dispatch.markDispatched,
  cancelling: dispatch.findCancelling,
  openSince: dispatch.findOpenSince,
  workflowOf: ({ workflow_id }) => workflow_id,
  start: startOperation,
  async fail({ _id }) {
    const error = new Problem(500, 'internal', endedInside).document()
    await operations.endOperation(_id, { state: 'failed', error, status: 'error' })
  },
  waits: waitsInLine,
}

const runKind: Kind<runs.RunSummary> = {
  name: 'run',
  undispatched: runs.findUndispatchedRuns,
  markDispatched: runs.markRunsDispatched,
  cancelling: runs.findCancellingRuns,
  openSince: runs.findRunsOpenSince,
  workflowOf: ({ _id }) => runWorkflowId(_id),
  start: startRun,
  async fail(run) {
    const error = { code: 'internal', message: endedInside, node: null }
    await endRun(run, { status: 'failed', error })
  },
  waits: async () => false,
}

/**
 * Carries on what was accepted: starts what the API did not start (it was killed, or Temporal was down), repeats cancels,
 * tells runs of decisions, and closes what has no workflow any more. Every worker runs one; starting, cancelling, telling
 * and closing are idempotent.
 */
export function startDispatcher(client: Client, log: Logger): { stop(): Promise<void> } {
  const stopping = new AbortController()
  const rounds = [makeRound(operationKind, client, log), makeRound(runKind, client, log)]
  const running = (async () => {
    while (!stopping.signal.aborted) {
      try {
        for (const round of rounds) await round()
        for (const next of await takeLeftInLines()) await startOperation(client, next)
        await tellOfDecisions(client, log)
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

function makeRound<T extends { _id: string }>(kind: Kind<T>, client: Client, log: Logger) {
  let lookedAt = 0
  return async (): Promise<void> => {
    for (const thing of await kind.undispatched(undispatchedAfterMs, batch)) {
      if (await kind.waits(thing)) continue
      log.info(
        { id: thing._id, workflow_id: kind.workflowOf(thing) },
        `starting an accepted ${kind.name} that was not started`,
      )
      await kind.start(client, thing)
      await kind.markDispatched([thing._id])
    }
    for (const thing of await kind.cancelling(undispatchedAfterMs))
      await cancelOperation(client, kind.workflowOf(thing))
    if (Date.now() - lookedAt < lookEveryMs) return
    lookedAt = Date.now()
    const open = await kind.openSince(lookAfterMs)
    for (let at = 0; at < open.length; at += lookBatch) {
      const some = open.slice(at, at + lookBatch)
      const running = await runningOf(client, some.map(kind.workflowOf))
      for (const thing of some) if (!running.has(kind.workflowOf(thing))) await look(kind, thing, client, log)
    }
  }
}

const lookBatch = 100

/**
 * Which of these workflows run, in one query. Temporal answers it from an index that is a little late: look at what it does
 * not name; what it still names is looked at in a later round.
 */
async function runningOf(client: Client, ids: string[]): Promise<Set<string>> {
  const named = ids.map((id) => `'${id}'`).join()
  const running = new Set<string>()
  const query = `ExecutionStatus = 'Running' AND WorkflowId IN (${named})`
  for await (const { workflowId } of client.workflow.list({ query })) running.add(workflowId)
  return running
}

/** Tells runs of the decisions that the API did not tell them. */
async function tellOfDecisions(client: Client, log: Logger): Promise<void> {
  for (const { run_id, node } of await findUntoldDecisions(undispatchedAfterMs, batch)) {
    log.info({ run_id, node }, 'passing on a decision that was not passed on')
    await tellOfDecision(client, run_id)
    await markDecisionTold(run_id, node)
  }
}

/** Closes what is open and whose workflow was terminated; restarts what Temporal has lost. */
async function look<T extends { _id: string }>(
  kind: Kind<T>,
  thing: T,
  client: Client,
  log: Logger,
): Promise<void> {
  const ids = { id: thing._id, workflow_id: kind.workflowOf(thing) }
  try {
    const { status } = await client.workflow.getHandle(kind.workflowOf(thing)).describe()
    if (status.name === 'RUNNING') return
    log.error({ ...ids, status: status.name }, `a workflow ended without closing its ${kind.name}`)
    await kind.fail(thing)
  } catch (error) {
    if (!(error instanceof WorkflowNotFoundError)) throw error
    log.error(ids, 'Temporal has lost a workflow; starting it anew')
    await kind.start(client, thing)
  }
}

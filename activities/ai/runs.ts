import { type Graph, graphOf } from '../../lib/ai/graph.ts'
import { defaults, type ItemStep, type NodeSpec } from '../../lib/ai/node-kinds.ts'
import type { Logger } from '../../lib/log.ts'
import { runWorkflowId } from '../../lib/operation-workflows.ts'
import { mapAtOnce } from '../../lib/queue.ts'
import type { NodeEnd } from '../../lib/runner-protocol.ts'
import { lookAtCanary } from '../../models/ai/canary-looks.ts'
import { lookAtRow, settleNode, skipNodes, specOfRun } from '../../models/ai/run-node-ends.ts'
import { endRun, type RunEnding } from '../../models/ai/run-ends.ts'
import { beginRun, findRun, openRunsOf, type RunSummary, runsEndedBy } from '../../models/ai/runs.ts'
import type { Client } from '@temporalio/client'
import { cancelOperation } from '../../workflows/starters.ts'
import { type Ended, standingOf } from '../operations.ts'

/** Of one node that does more than evaluate expressions. */
export interface Attempts {
  timeout_sec: number
  /** All together. */
  most: number
  backoff_sec: number
}

/** What the workflow of a run knows of it: names and numbers, no values. */
export interface RunToCarryOut {
  run: { _id: string; tenant_id: string; workflow_id: string }
  deployment_id: string
  graph: Graph
  /** By node. A node that is not named only evaluates expressions. */
  attempts: Record<string, Attempts>
  /** What waits without a runner. */
  waits: Waits
  wall_sec: number
  /** It was cancelled before it began. */
  cancelled: boolean
}
type Run = RunToCarryOut['run']

export interface Waits {
  /** Of nodes that are runs, and of items that are: how they are attempted. */
  calls: Record<string, Attempts>
  maps: Record<string, { at_once: number; on_error: 'fail' | 'value' }>
}

/** Short reads and writes of MongoDB, by which the workflow of a run keeps its records. */
export const makeAiRunActivities = ({ client, log }: { client: Client; log: Logger }) => ({
  /** `ended`: it has ended, and its workflow has nothing to do. Null: it is gone. */
  async beginAiRun(id: string): Promise<RunToCarryOut | { ended: Ended } | null> {
    const begun = await beginRun(id)
    if (!begun) return null
    const { _id, tenant_id, workflow_id, deployment_id, status } = begun
    const { cancelled, ended } = await standingOf(client, runWorkflowId(_id), { ...begun, state: status })
    if (ended) return { ended }
    const { nodes, budget } = await specOfRun(begun)
    return {
      run: { _id, tenant_id, workflow_id },
      deployment_id,
      graph: graphOf(nodes),
      attempts: Object.fromEntries(
        Object.entries(nodes).flatMap(([name, node]) => {
          const its = node.kind === 'workflow' ? null : attemptsOf(node)
          return its ? [[name, its]] : []
        }),
      ),
      waits: waitsOf(nodes),
      wall_sec: budget.wall_sec,
      cancelled,
    }
  },

  skipAiRunNodes: (run: Run, names: string[]): Promise<void> => skipNodes(run, names),

  /** How far the nodes of a row are that did not answer. */
  lookAtAiRow: (run: Run, names: string[]): ReturnType<typeof lookAtRow> => lookAtRow(run, names),

  /** Ends a node that did not answer, and returns how it stands. */
  settleAiRunNode: (
    run: Run,
    node: string,
    status: 'failed' | 'cancelled',
    error: { code: string; message: string } | null,
  ): Promise<NodeEnd> => settleNode(run, node, status, error),

  /** Returns how the run has ended if that was before: with its last node, or with its deployment. */
  async endAiRun(run: Run, end: RunEnding): Promise<Ended | null> {
    const ended = await endRun(run, end)
    const before = ended ? null : await findRun(run)
    const its = ended ?? before
    if (its) await lookAfter(its, log)
    return before && { state: before.status as Ended['state'], code: before.error?.code ?? null }
  },
})

/** The run has ended, whether or not its canary can be looked at: the next run that ends looks again. */
const lookAfter = ({ tenant_id, deployment_id }: RunSummary, log: Logger): Promise<void> =>
  lookAtCanary(tenant_id, deployment_id).catch((err: unknown) =>
    log.warn({ err, deployment_id }, 'a canary was not checked'),
  )

export type AiRunActivities = ReturnType<typeof makeAiRunActivities>

function attemptsOf(node: NodeSpec | ItemStep): Attempts | null {
  if (!('timeout_sec' in defaults && node.kind in defaults.timeout_sec)) return null
  const kind = node.kind as keyof typeof defaults.timeout_sec
  const { timeout_sec = defaults.timeout_sec[kind], retry = defaults.retry } = node as Extract<
    NodeSpec,
    { kind: typeof kind }
  >
  return { timeout_sec, most: retry.max + 1, backoff_sec: retry.backoff_sec ?? defaults.retry.backoff_sec }
}

function waitsOf(nodes: Record<string, NodeSpec>): Waits {
  const waits: Waits = { calls: {}, maps: {} }
  for (const [name, node] of Object.entries(nodes)) {
    const step = node.kind === 'map' ? node.do : node
    const its = step.kind === 'workflow' ? attemptsOf(step) : null
    if (its) waits.calls[name] = its
    if (node.kind !== 'map') continue
    const { at_once = defaults.at_once } = node
    waits.maps[name] = { at_once, on_error: typeof node.do.on_error === 'object' ? 'value' : 'fail' }
  }
  return waits
}

const perRound = 50
const atOnce = 16

/** Activities that end the runs of a deployment. */
export const makeAiRunEndActivities = ({ client }: { client: Client }) => ({
  /**
   * Ends the open runs of a deployment that takes no more. The records come first: they are what is shown, and Temporal may
   * be slow. The workflows are then cancelled, also those that an earlier attempt had no time for.
   */
  async undeployAiRuns(deployment_id: string, code: keyof typeof endMessages = 'undeployed'): Promise<void> {
    const error = { code, message: endMessages[code], node: null }
    for (let some = await openRunsOf(deployment_id, perRound); some.length > 0; ) {
      await mapAtOnce(some, atOnce, (run) => endRun(run, { status: 'failed', error }))
      some = await openRunsOf(deployment_id, perRound)
    }
    const ids = await runsEndedBy(deployment_id, code)
    await mapAtOnce(ids, atOnce, (id) => cancelOperation(client, runWorkflowId(id)))
  },
})

const endMessages = {
  undeployed: 'The workflow was undeployed',
  canary_stopped: 'The canary was stopped',
}

export type AiRunEndActivities = ReturnType<typeof makeAiRunEndActivities>

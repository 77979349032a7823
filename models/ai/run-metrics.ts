import { percentile } from '../../lib/percentile.ts'
import { spentOn } from '../llm/ledgers.ts'
import { AiRun } from './runs.ts'

// What the runs of a workflow have taken, counted from their records.

/** Of the runs that ended in the time asked for, so many of the newest are counted. */
export const mostCounted = 10_000

export interface RunMetrics {
  /** That ended, the cancelled ones too. */
  runs: number
  succeeded: number
  failed: number
  cancelled: number
  /** Of the durations of those that succeeded or failed. Null: there are none. */
  p50_ms: number | null
  p95_ms: number | null
  tokens: number
  cost_nano_usd: number
}

export interface WorkflowMetrics {
  /** False: more runs ended, and the oldest are not counted. */
  is_complete: boolean
  all: RunMetrics
  deployments: (RunMetrics & { deployment_id: string; version: number })[]
}

interface EndedRun {
  _id: string
  deployment_id: string
  version: number
  status: 'succeeded' | 'failed' | 'cancelled'
  started_at: Date | null
  ended_at: Date
}

/** Of the runs that have ended since then, but for those of evals. */
export async function runMetricsOf(
  { _id: workflow_id, tenant_id }: { _id: string; tenant_id: string },
  since: Date,
): Promise<WorkflowMetrics> {
  // An index has all of these fields.
  const fields = { deployment_id: 1, version: 1, status: 1, started_at: 1, ended_at: 1 } as const
  const ended = (await AiRun.find(
    { tenant_id, workflow_id, ended_at: { $gte: since }, trigger: { $ne: 'eval' } },
    fields,
  )
    .sort({ ended_at: -1 })
    .limit(mostCounted + 1)
    .lean()) as EndedRun[]
  const counted = ended.slice(0, mostCounted)
  const byDeployment = Map.groupBy(counted, ({ deployment_id }) => deployment_id)
  const deployments = []
  for (const [deployment_id, runs] of byDeployment) {
    const version = runs[0]?.version ?? 0
    deployments.push({ deployment_id, version, ...(await metricsOf(tenant_id, runs)) })
  }
  return {
    is_complete: ended.length <= mostCounted,
    all: await metricsOf(tenant_id, counted),
    deployments,
  }
}

async function metricsOf(tenant_id: string, runs: EndedRun[]): Promise<RunMetrics> {
  const count = (status: EndedRun['status']): number => runs.filter((run) => run.status === status).length
  const durations = runs.flatMap(({ status, started_at, ended_at }) =>
    status === 'cancelled' || started_at === null ? [] : [ended_at.getTime() - started_at.getTime()],
  )
  const spent = await spentOn(
    tenant_id,
    runs.map(({ _id: id }) => ({ kind: 'run', id })),
  )
  return {
    runs: runs.length,
    succeeded: count('succeeded'),
    failed: count('failed'),
    cancelled: count('cancelled'),
    p50_ms: percentile(durations, 0.5),
    p95_ms: percentile(durations, 0.95),
    tokens: spent.reduce((sum, { tokens }) => sum + tokens, 0),
    cost_nano_usd: spent.reduce((sum, { cost_nano_usd }) => sum + cost_nano_usd, 0),
  }
}

import { type CanaryDecision, type CanaryWindow, decide, windowMs } from '../../lib/ai/canary-policy.ts'
import { percentile } from '../../lib/percentile.ts'
import { spentOn } from '../llm/ledgers.ts'
import { AiDeployment, type AiDeploymentDocument, type CanaryTerms, deploymentOf } from './deployments.ts'
import { AiRun } from './runs.ts'

// What the policy of canaries (lib/ai/canary-policy.ts) sees of their runs, and what follows.

/** Of the runs in a window, so many of the newest count: each run of a canary that ends counts them anew. */
const most = 500

type Canary = AiDeploymentDocument & { canary: CanaryTerms }

/**
 * Sends the runs of a canary back to the primary if one of its runs has ended, and the policy says so. Its weight becomes 0 once,
 * and only if nobody has changed the canary meanwhile.
 */
export async function lookAtCanary(tenant_id: string, deployment_id: string): Promise<void> {
  const taking = { _id: deployment_id, tenant_id, role: 'canary', 'canary.weight': { $gt: 0 } } as const
  const there = await AiDeployment.findOne(taking).lean()
  if (!isCanary(there)) return
  const decision = await decisionOn(there)
  if (decision.verdict === 'hold') return
  const sent_back = { ...decision, at: new Date() }
  await AiDeployment.updateOne(
    { ...taking, 'canary.since': there.canary.since },
    { $set: { 'canary.weight': 0, 'canary.sent_back': sent_back } },
  )
}

const isCanary = (there: AiDeploymentDocument | null): there is Canary =>
  there !== null && there.canary !== null

/** What the policy says now of a canary that takes runs; null: it takes none. */
export async function standingOf(there: AiDeploymentDocument): Promise<CanaryDecision | null> {
  if (!isCanary(there) || there.status !== 'ready' || there.canary.weight === 0) return null
  return decisionOn(there)
}

async function decisionOn({ _id, tenant_id, workflow_id, canary }: Canary): Promise<CanaryDecision> {
  const primary = await deploymentOf(tenant_id, workflow_id, 'primary')
  const [its, others] = await Promise.all([
    endedOf(tenant_id, _id, canary.since),
    primary ? endedOf(tenant_id, primary._id, canary.since) : [],
  ])
  const withCost = canary.bounds.cost_ratio !== null
  const [window, usual] = await Promise.all([
    windowOf(tenant_id, its, withCost),
    windowOf(tenant_id, others, withCost),
  ])
  // Failures in a row count however long ago they were.
  const last = its.map(({ status }) => status)
  return decide(window, usual, last, canary.bounds)
}

interface EndedRun {
  _id: string
  status: 'succeeded' | 'failed'
  started_at: Date | null
  ended_at: Date
}

/** The runs of a deployment that ended since then, but for those of evals, the newest first. An index has all that is read. */
const endedOf = async (tenant_id: string, deployment_id: string, since: Date): Promise<EndedRun[]> =>
  (await AiRun.find(
    {
      tenant_id,
      deployment_id,
      ended_at: { $gte: since },
      status: { $in: ['succeeded', 'failed'] },
      trigger: { $ne: 'eval' },
    },
    { _id: 1, status: 1, started_at: 1, ended_at: 1 },
  )
    .sort({ ended_at: -1 })
    .limit(most)
    .lean()) as EndedRun[]

async function windowOf(tenant_id: string, ended: EndedRun[], withCost: boolean): Promise<CanaryWindow> {
  const from = Date.now() - windowMs
  const runs = ended.filter(({ ended_at }) => ended_at.getTime() >= from)
  return {
    runs: runs.length,
    errors: runs.filter(({ status }) => status === 'failed').length,
    p95_ms: percentile(
      runs.map(({ started_at, ended_at }) => ended_at.getTime() - (started_at ?? ended_at).getTime()),
      0.95,
    ),
    cost_nano_usd: withCost
      ? await costOf(
          tenant_id,
          runs.map(({ _id }) => _id),
        )
      : null,
  }
}

/** A run whose calls took tokens and cost nothing has called a model without a known price. */
async function costOf(tenant_id: string, runs: string[]): Promise<number | null> {
  const spent = await spentOn(
    tenant_id,
    runs.map((id) => ({ kind: 'run', id })),
  )
  if (spent.some(({ tokens, cost_nano_usd }) => tokens > 0 && cost_nano_usd === 0)) return null
  return spent.reduce((sum, { cost_nano_usd }) => sum + cost_nano_usd, 0)
}

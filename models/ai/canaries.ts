import type { CanaryBounds } from '../../lib/ai/canary-policy.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import { begin, type By } from '../acceptance.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { lockAiWorkflow } from './ai-workflows.ts'
import {
  acceptAiDeploymentDeletion,
  type DeploymentAccepted,
  makeAiDeployment,
  versionAsked,
} from './deployment-acceptance.ts'
import {
  AiDeployment,
  type AiDeploymentDocument,
  aiDeploymentResource,
  type CanaryTerms,
  deploymentOf,
  notDeployed,
} from './deployments.ts'
import { needEvalPass } from './eval-gate.ts'

// A canary is a second deployment of a workflow, which takes some of its runs (run-routes.ts). All of this locks the workflow, as
// the acceptance of runs does: a run goes by the deployments before a change, or by those after it.

export interface NewCanary {
  /** Null: that of the canary which is there, else the one published last. */
  version: number | null
  /** Percent of the runs. */
  weight: number
  /** Without them those that are there stay, and a new canary has none. */
  bounds?: CanaryBounds | undefined
  /** Of a new canary. Null: as the primary's. */
  cpu_cores: number | null
  memory_mib: number | null
}

const title = 'canary'
const unbounded: CanaryBounds = { p95_ratio: null, cost_ratio: null }

/**
 * Accepts a canary, or changes the weight and bounds of the one that is there with this version. Throws NotFound, `not_published`,
 * `not_deployed` without a primary that is ready, `uses_missing`, CanaryExists if another version is the canary, or it is not good.
 */
export const acceptCanary = (
  by: By,
  workflow_id: string,
  { version, weight, bounds, ...size }: NewCanary,
): Promise<DeploymentAccepted> =>
  transaction(async (): Promise<DeploymentAccepted> => {
    const { tenant_id } = by
    const workflow = await lockAiWorkflow(by, workflow_id)
    const there = await deploymentOf(tenant_id, workflow_id, 'canary')
    if (there) {
      if (version !== null && version !== there.version) throw new CanaryExists(there)
      return { document: await setTerms(there, { weight, bounds }), operation: null }
    }
    const primary = await deploymentOf(tenant_id, workflow_id, 'primary')
    if (primary?.status !== 'ready') throw notDeployed(primary?.status ?? null)
    return makeAiDeployment(by, await versionAsked(workflow, version), {
      role: 'canary',
      canary: termsOf(weight, bounds ?? unbounded),
      cpu_cores: size.cpu_cores ?? primary.cpu_cores,
      memory_mib: size.memory_mib ?? primary.memory_mib,
    })
  }, workflow_id)

const termsOf = (weight: number, bounds: CanaryBounds): CanaryTerms => ({
  weight,
  bounds,
  since: new Date(),
  sent_back: null,
})

async function setTerms(
  there: AiDeploymentDocument,
  { weight, bounds }: Pick<NewCanary, 'weight' | 'bounds'>,
): Promise<AiDeploymentDocument> {
  const canary = termsOf(weight, bounds ?? there.canary?.bounds ?? unbounded)
  const its = { _id: there._id, tenant_id: there.tenant_id, status: { $in: ['creating', 'ready'] as const } }
  const changed = await AiDeployment.findOneAndUpdate(
    its,
    { $set: { canary } },
    { returnDocument: 'after' },
  ).lean()
  if (!changed) throw new CanaryExists(there)
  return changed
}

/** Accepts the end of a workflow's canary: it takes no more runs, and its open runs fail. Throws NotFound, and as `begin`. */
export const acceptCanaryStop = (by: By, workflow_id: string): Promise<Accepted<AiDeploymentDocument>> =>
  transaction(async () => {
    await lockAiWorkflow(by, workflow_id)
    const there = await deploymentOf(by.tenant_id, workflow_id, 'canary')
    if (!there) throw new NotFound(title)
    return acceptAiDeploymentDeletion(by, there._id, { code: 'canary_stopped' })
  }, workflow_id)

/**
 * Makes the canary the primary at once, and accepts that the former primary is drained. Returns the canary, and the operation on
 * the former primary. Throws NotFound, `canary_not_ready`, `evals_not_passed`, and as `begin`.
 */
export const acceptPromotion = (by: By, workflow_id: string): Promise<Accepted<AiDeploymentDocument>> =>
  transaction(async () => {
    const { tenant_id } = by
    const workflow = await lockAiWorkflow(by, workflow_id)
    const canary = await deploymentOf(tenant_id, workflow_id, 'canary')
    if (!canary) throw new NotFound(title)
    if (canary.status !== 'ready') throw notReady(canary)
    await needEvalPass(workflow, canary)
    const primary = await deploymentOf(tenant_id, workflow_id, 'primary')
    if (!primary) throw notDeployed(null)
    const { operation } = await begin(by, aiDeploymentResource, primary._id, 'drain')
    await AiDeployment.updateOne({ _id: primary._id, tenant_id }, { $set: { role: 'former' } })
    const its = { _id: canary._id, tenant_id }
    const promoted = await AiDeployment.findOneAndUpdate(
      its,
      { $set: { role: 'primary', canary: null } },
      { returnDocument: 'after' },
    ).lean()
    if (!promoted) throw new NotFound(title)
    return { document: promoted, operation }
  }, workflow_id)

const notReady = ({ status }: AiDeploymentDocument): Problem =>
  new Problem(409, 'canary_not_ready', 'The canary is not ready', `It is ${status}`)

/** A workflow has one canary. */
export class CanaryExists extends Problem {
  constructor({ _id, version, status }: AiDeploymentDocument) {
    super(
      409,
      'canary_exists',
      'The workflow has a canary',
      `The canary has version ${version} and is ${status}: promote or stop it first`,
      { extensions: { deployment_id: _id, version, status } },
    )
  }
}

import mongoose, { Schema } from 'mongoose'
import type { CanaryBounds, CanaryDecision } from '../../lib/ai/canary-policy.ts'
import { Problem } from '../../lib/problem.ts'
import { givesVars } from '../compute/manager-vars.ts'
import { defineResource, type ResourceDocument, resourceSchema } from '../resources.ts'
import { type StateOf, states } from '../states.ts'
import { runnerVars } from './runners.ts'

export const aiDeploymentStates = states(
  {
    creating: {},
    ready: { drain: 'draining', delete: 'deleting' },
    error: { drain: 'draining', delete: 'deleting' },
  },
  { supersede: ['delete'], final: ['drain', 'delete'] },
)

/** `former`: a promoted canary has taken its place. It takes no more runs, and goes when its open runs have ended. */
export const aiDeploymentRoles = ['primary', 'canary', 'former'] as const
export type AiDeploymentRole = (typeof aiDeploymentRoles)[number]

/**
 * A version of an AI workflow with its runner: a container that the deployment manages, and a record of who the runner is
 * (runners.ts), with the deployment's id. A workflow has one primary, one canary if it has a primary, and any number of former
 * primaries. Not a deployment of a deploy server (models/deploy/deployments.ts).
 */
export interface AiDeploymentDocument extends ResourceDocument<StateOf<typeof aiDeploymentStates>> {
  workflow_id: string
  role: AiDeploymentRole
  /** What makes it a canary. Null: it is none. */
  canary: CanaryTerms | null
  version: number
  spec_sha256: string
  cpu_cores: number
  memory_mib: number
  /** Null until it has been accepted. */
  container_id: string | null
  /** What the version uses (uses.ts). */
  uses: string[]
}

/** Which runs a canary takes, and what sends them back to the primary (canary-looks.ts). */
export interface CanaryTerms {
  /** Percent of the runs, of which two decimals count. */
  weight: number
  bounds: CanaryBounds
  /** The last change of these terms: what ended before does not count. */
  since: Date
  /** By which the weight became 0; null: it did not. */
  sent_back: (CanaryDecision & { at: Date }) | null
}

const schema = resourceSchema<AiDeploymentDocument>(
  {
    workflow_id: { type: String, required: true },
    role: { type: String, default: 'primary', enum: aiDeploymentRoles },
    canary: { type: Schema.Types.Mixed, default: null },
    version: { type: Number, required: true },
    spec_sha256: { type: String, required: true },
    cpu_cores: { type: Number, required: true },
    memory_mib: { type: Number, required: true },
    container_id: { type: String, default: null },
    uses: { type: [String], default: [] },
  },
  aiDeploymentStates,
  'ai_deployments',
)
const oneOfEach: AiDeploymentRole[] = ['primary', 'canary']
schema.index(
  { tenant_id: 1, workflow_id: 1, role: 1 },
  { unique: true, partialFilterExpression: { role: { $in: oneOfEach } } },
)
schema.index({ tenant_id: 1, uses: 1 })
export const AiDeployment = mongoose.model<AiDeploymentDocument>('AiDeployment', schema)
export const aiDeploymentResource = defineResource('ai_deployment', AiDeployment, aiDeploymentStates, {
  title: 'deployment',
})

givesVars(({ tenant_id, managed_by }) => runnerVars(tenant_id, managed_by))

/** The deployment of a workflow that has this role; null if there is none. */
export const deploymentOf = (
  tenant_id: string,
  workflow_id: string,
  role: 'primary' | 'canary',
): Promise<AiDeploymentDocument | null> => AiDeployment.findOne({ tenant_id, workflow_id, role }).lean()

/** All deployments of a workflow, the oldest first. */
export const deploymentsOf = (tenant_id: string, workflow_id: string): Promise<AiDeploymentDocument[]> =>
  AiDeployment.find({ tenant_id, workflow_id }).sort({ _id: 1 }).lean()

/** Throws `workflow_deployed` while the workflow has a deployment of any role. Call after a write to the workflow. */
export async function needUndeployed(tenant_id: string, workflow_id: string): Promise<void> {
  const there = await AiDeployment.findOne({ tenant_id, workflow_id }).lean()
  if (there) throw new WorkflowDeployed(there, 'Undeploy it first')
}

/** `status`: of the primary; null: there is none. */
export const notDeployed = (status: string | null): Problem =>
  new Problem(
    409,
    'not_deployed',
    'The workflow is not deployed',
    status === null ? 'Deploy a version first' : `Its deployment is ${status}`,
  )

export class WorkflowDeployed extends Problem {
  constructor({ _id, version, status }: AiDeploymentDocument, what: string) {
    super(
      409,
      'workflow_deployed',
      'The workflow is deployed',
      `Its deployment has the version ${version} and is ${status}. ${what}`,
      { extensions: { deployment_id: _id, version, status } },
    )
  }
}

import mongoose from 'mongoose'
import { Problem } from '../../lib/problem.ts'
import { givesVars } from '../compute/manager-vars.ts'
import { defineResource, type ResourceDocument, resourceSchema } from '../resources.ts'
import { type StateOf, states } from '../states.ts'
import { runnerVars } from './runners.ts'

export const aiDeploymentStates = states(
  { creating: {}, ready: { delete: 'deleting' }, error: { delete: 'deleting' } },
  { supersede: ['delete'], final: ['delete'] },
)

/**
 * A version of an AI workflow with its runner: a container that the deployment manages, and a record of who the runner is
 * (runners.ts), with the deployment's id. A workflow has one deployment. Not one of a deploy server (models/deploy/deployments.ts).
 */
export interface AiDeploymentDocument extends ResourceDocument<StateOf<typeof aiDeploymentStates>> {
  workflow_id: string
  version: number
  spec_sha256: string
  cpu_cores: number
  memory_mib: number
  /** Null until it has been accepted. */
  container_id: string | null
  /** What the version uses (uses.ts). */
  uses: string[]
}

const schema = resourceSchema<AiDeploymentDocument>(
  {
    workflow_id: { type: String, required: true },
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
schema.index({ tenant_id: 1, workflow_id: 1 }, { unique: true })
schema.index({ tenant_id: 1, uses: 1 })
export const AiDeployment = mongoose.model<AiDeploymentDocument>('AiDeployment', schema)
export const aiDeploymentResource = defineResource('ai_deployment', AiDeployment, aiDeploymentStates, {
  title: 'deployment',
})

givesVars(({ tenant_id, managed_by }) => runnerVars(tenant_id, managed_by))

/** The deployment of a workflow; null if there is none. */
export const deploymentOf = (tenant_id: string, workflow_id: string): Promise<AiDeploymentDocument | null> =>
  AiDeployment.findOne({ tenant_id, workflow_id }).lean()

/** Throws `workflow_deployed` while the workflow has a deployment. Call after a write to the workflow. */
export async function needUndeployed(tenant_id: string, workflow_id: string): Promise<void> {
  const there = await deploymentOf(tenant_id, workflow_id)
  if (there) throw new WorkflowDeployed(there, 'Undeploy it first')
}

/** `status`: of the deployment; null: there is none. */
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

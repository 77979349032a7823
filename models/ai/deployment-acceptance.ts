import { newId } from '../../lib/ids.ts'
import { NotFound, Problem, StateConflict } from '../../lib/problem.ts'
import { accepts, begin, type By, create } from '../acceptance.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { mine } from '../resources.ts'
import { AiWorkflow, type AiWorkflowDocument, lockAiWorkflow } from './ai-workflows.ts'
import {
  type AiDeploymentDocument,
  aiDeploymentResource,
  deploymentOf,
  deploymentsOf,
  WorkflowDeployed,
} from './deployments.ts'
import { createRunner } from './runners.ts'
import { holdUses, keyOfUse } from './uses.ts'
import { type AiWorkflowVersionDocument, versionNumbered } from './versions.ts'

export interface NewAiDeployment {
  /** Null: the version published last. */
  version: number | null
  cpu_cores: number
  memory_mib: number
}

export type DeploymentAccepted =
  | Accepted<AiDeploymentDocument>
  | { document: AiDeploymentDocument; operation: null }

/**
 * Accepts the deployment of a version, or returns the one that is there, or on its way, with this version. Throws NotFound,
 * `not_published`, `uses_missing`, and WorkflowDeployed if another version is deployed, or the deployment is not good.
 */
export async function acceptAiDeployment(
  by: By,
  workflow_id: string,
  { version: asked, ...size }: NewAiDeployment,
): Promise<DeploymentAccepted> {
  return transaction(async (): Promise<DeploymentAccepted> => {
    const workflow = await lockAiWorkflow(by, workflow_id)
    const version = await versionAsked(workflow, asked)
    const there = await deploymentOf(by.tenant_id, workflow_id, 'primary')
    if (there) return same(there, version)
    return makeAiDeployment(by, version, { role: 'primary', canary: null, ...size })
  }, workflow_id)
}

/** The version, or the one published last. Throws NotFound, `not_published`. */
export async function versionAsked(
  workflow: AiWorkflowDocument,
  asked: number | null,
): Promise<AiWorkflowVersionDocument> {
  const number = asked ?? workflow.latest_version
  if (number === null)
    throw new Problem(409, 'not_published', 'The workflow has no version', 'Publish its draft first')
  return versionNumbered(workflow, number)
}

/**
 * Makes a deployment with a runner. Call while the workflow is locked: it contends with the workflow's deletion, and with other
 * deployments. Throws `uses_missing`.
 */
export async function makeAiDeployment(
  by: By,
  version: AiWorkflowVersionDocument,
  fields: Pick<AiDeploymentDocument, 'role' | 'canary' | 'cpu_cores' | 'memory_mib'>,
): Promise<Accepted<AiDeploymentDocument>> {
  const { tenant_id, workflow_id, version: number, spec_sha256 } = version
  await needUses(version)
  const _id = newId()
  await createRunner({ _id, tenant_id, workflow_id, version: number })
  return create(by, aiDeploymentResource, {
    id: _id,
    fields: {
      // Two deployments may have one version.
      name: `${workflow_id}-${number}-${_id.slice(-12)}`,
      tags: {},
      workflow_id,
      version: number,
      spec_sha256,
      ...fields,
      container_id: null,
      uses: [...new Set(version.uses.map(keyOfUse))],
    },
  })
}

function same(there: AiDeploymentDocument, { version }: AiWorkflowVersionDocument): DeploymentAccepted {
  if (there.version !== version)
    throw new WorkflowDeployed(there, 'Undeploy it before you deploy another version')
  if (there.status !== 'ready' && there.status !== 'creating')
    throw new WorkflowDeployed(there, 'Undeploy it, then deploy it again')
  return { document: there, operation: null }
}

/** An older version may use what is gone. Throws `uses_missing`. */
async function needUses({ tenant_id, uses }: AiWorkflowVersionDocument): Promise<void> {
  try {
    await holdUses(tenant_id, uses)
  } catch (cause) {
    if (!(cause instanceof NotFound || cause instanceof StateConflict)) throw cause
    throw new Problem(
      409,
      'uses_missing',
      'The version uses something that no longer exists',
      cause.message,
      {
        cause,
      },
    )
  }
}

/**
 * Accepts the end of all deployments of a workflow: that of the primary ends the others. Throws NotFound if the workflow is not
 * deployed, and as `begin`.
 */
export async function acceptUndeployment(
  by: By,
  workflow_id: string,
): Promise<Accepted<AiDeploymentDocument>> {
  return transaction(async () => {
    await lockAiWorkflow(by, workflow_id) // no promotion changes the roles between
    const all = await deploymentsOf(by.tenant_id, workflow_id)
    // Without a primary something is left of a failed undeployment.
    const there = all.find(({ role }) => role === 'primary') ?? all[0]
    if (!there) throw new NotFound(aiDeploymentResource.title)
    return acceptAiDeploymentDeletion(by, there._id)
  }, workflow_id)
}

/** What ends a deployment, and the runs that are open then. */
export interface DeploymentEnd {
  code?: 'undeployed' | 'canary_stopped'
}

/** Contends with the acceptance of runs, which writes the workflow, too: after the commit, there are no more. Throws as `begin`. */
export const acceptAiDeploymentDeletion = (
  { tenant_id, ...by }: By,
  id: string,
  input: DeploymentEnd = {},
): Promise<Accepted<AiDeploymentDocument>> =>
  transaction(async () => {
    const there = await mine(aiDeploymentResource, { tenant_id }, id)
    const its = { _id: there.workflow_id, tenant_id }
    await AiWorkflow.updateOne(its, { $inc: { turns: 1 } }, { timestamps: false })
    return begin({ tenant_id, ...by }, aiDeploymentResource, id, 'delete', { input })
  }, tenant_id)

accepts(aiDeploymentResource, { verbs: { delete: acceptAiDeploymentDeletion } })

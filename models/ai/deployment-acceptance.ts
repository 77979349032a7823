import { newId } from '../../lib/ids.ts'
import { NotFound, Problem, StateConflict } from '../../lib/problem.ts'
import { accepts, begin, type By, create } from '../acceptance.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { mine } from '../resources.ts'
import { AiWorkflow, aiWorkflowOf, title } from './ai-workflows.ts'
import {
  AiDeployment,
  type AiDeploymentDocument,
  aiDeploymentResource,
  deploymentOf,
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

type DeploymentAccepted = Accepted<AiDeploymentDocument> | { document: AiDeploymentDocument; operation: null }

/**
 * Accepts the deployment of a version, or returns the one that is there, or on its way, with this version. Throws NotFound,
 * `not_published`, `uses_missing`, and WorkflowDeployed if another version is deployed, or the deployment is not good.
 */
export async function acceptAiDeployment(
  by: By,
  workflow_id: string,
  { version: asked, ...size }: NewAiDeployment,
): Promise<DeploymentAccepted> {
  const { tenant_id } = by
  return transaction(async (): Promise<DeploymentAccepted> => {
    // Contends with the deletion of the workflow, and with another deployment.
    const workflow = await AiWorkflow.findOneAndUpdate(
      { _id: workflow_id, tenant_id },
      { $inc: { turns: 1 } },
      { timestamps: false, returnDocument: 'after' },
    ).lean()
    if (!workflow) throw new NotFound(title)
    const number = asked ?? workflow.latest_version
    if (number === null)
      throw new Problem(409, 'not_published', 'The workflow has no version', 'Publish its draft first')
    const version = await versionNumbered(workflow, number)
    const there = await deploymentOf(tenant_id, workflow_id)
    if (there) return same(there, version)
    await needUses(version)
    const _id = newId()
    await createRunner({ _id, tenant_id, workflow_id, version: number })
    return create(by, aiDeploymentResource, {
      id: _id,
      fields: {
        name: `${workflow_id}-${number}`,
        tags: {},
        workflow_id,
        version: number,
        spec_sha256: version.spec_sha256,
        ...size,
        container_id: null,
        uses: [...new Set(version.uses.map(keyOfUse))],
      },
    })
  }, workflow_id)
}

function same(there: AiDeploymentDocument, { version }: AiWorkflowVersionDocument): DeploymentAccepted {
  if (there.version !== version) throw new WorkflowDeployed(there, 'Undeploy it before another version')
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
    throw new Problem(409, 'uses_missing', 'Something that the version uses is gone', cause.message, {
      cause,
    })
  }
}

/** Throws NotFound if the workflow is not deployed, and as `begin`. */
export async function acceptUndeployment(
  by: By,
  workflow_id: string,
): Promise<Accepted<AiDeploymentDocument>> {
  await aiWorkflowOf(by, workflow_id)
  const there = await AiDeployment.findOne({ tenant_id: by.tenant_id, workflow_id }, { _id: 1 }).lean()
  if (!there) throw new NotFound(aiDeploymentResource.title)
  return acceptAiDeploymentDeletion(by, there._id)
}

/** Contends with the acceptance of runs, which writes the workflow, too: after the commit, there are no more. Throws as `begin`. */
const acceptAiDeploymentDeletion = (
  { tenant_id, ...by }: By,
  id: string,
): Promise<Accepted<AiDeploymentDocument>> =>
  transaction(async () => {
    const there = await mine(aiDeploymentResource, { tenant_id }, id)
    const its = { _id: there.workflow_id, tenant_id }
    await AiWorkflow.updateOne(its, { $inc: { turns: 1 } }, { timestamps: false })
    return begin({ tenant_id, ...by }, aiDeploymentResource, id, 'delete')
  }, tenant_id)

accepts(aiDeploymentResource, { verbs: { delete: acceptAiDeploymentDeletion } })

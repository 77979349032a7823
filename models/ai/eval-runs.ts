import { bucketOf } from '../../lib/ai/canary.ts'
import { newId } from '../../lib/ids.ts'
import { transaction } from '../database.ts'
import { AiDeployment, notDeployed } from './deployments.ts'
import type { AiEvalDocument } from './evals.ts'
import { checkedInput, countOpenRun } from './run-acceptance.ts'
import { newInput } from './run-redaction.ts'
import { type AiRunDocument, insertRun, type RunEval } from './runs.ts'
import { knownVersion } from './versions.ts'

/**
 * Accepts a run of an eval case on the eval's own deployment, whatever takes other runs. `note` writes the attempt in the
 * same transaction. It contends with undeployment and with the workflow's deletion, as acceptAiRun does. Throws NotFound,
 * InvalidInput, `not_deployed`, `too_many_runs`.
 */
export async function acceptEvalRun(
  its: Pick<AiEvalDocument, 'tenant_id' | 'workflow_id' | 'deployment_id' | 'version' | 'requested_by'>,
  which: RunEval,
  input: unknown,
  note: (run_id: string) => Promise<void>,
): Promise<AiRunDocument> {
  const { tenant_id, workflow_id, deployment_id, requested_by } = its
  const version = await knownVersion({ _id: workflow_id, tenant_id }, its.version)
  const given = await newInput(version, await checkedInput(version, input))
  return transaction(async () => {
    await countOpenRun(tenant_id, workflow_id)
    const ready = { _id: deployment_id, tenant_id, status: 'ready' as const }
    if (!(await AiDeployment.exists(ready))) throw notDeployed(null)
    const _id = newId()
    await note(_id)
    await given.keep({ _id, tenant_id })
    return insertRun({
      _id,
      tenant_id,
      workflow_id,
      deployment_id,
      version: version.version,
      spec_sha256: version.spec_sha256,
      trigger: 'eval',
      eval: which,
      canary_key: null,
      bucket: bucketOf(workflow_id, _id),
      requested_by,
      ...given.fields,
    })
  }, workflow_id)
}

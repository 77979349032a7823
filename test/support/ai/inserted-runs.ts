import { newId } from '../../../lib/ids.ts'
import { AiDeployment, type AiDeploymentDocument, type CanaryTerms } from '../../../models/ai/deployments.ts'
import { AiRunNode, runNodeId } from '../../../models/ai/run-node-records.ts'
import { createRunner, type RunnerDocument } from '../../../models/ai/runners.ts'
import { AiRun } from '../../../models/ai/runs.ts'
import { transaction } from '../../../models/database.ts'

/** A run that has ended, with one node, as records alone. Its ids as parameters of a path. */
export async function insertRun(
  tenant_id: string,
  workflow_id: string,
): Promise<{ run: string; node: string }> {
  const [run, node] = [newId(), 'say']
  await new AiRun({
    _id: run,
    tenant_id,
    workflow_id,
    deployment_id: newId(),
    version: 1,
    spec_sha256: '0',
    trigger: 'manual',
    bucket: 0,
    status: 'succeeded',
    input_json: '{"text":"hello"}',
    output: { bytes: 7, json: '"hello"', blob: null },
    ended_at: new Date(),
  }).save()
  await new AiRunNode({
    _id: runNodeId(run, node),
    tenant_id,
    run_id: run,
    node,
    status: 'succeeded',
    attempt: 1,
    output: { bytes: 7, json: '"hello"', blob: null },
  }).save()
  return { run, node }
}

/** A deployment that is ready, and has no runner: its runs stay open until they are ended otherwise. */
export async function insertDeployment(
  tenant_id: string,
  workflow_id: string,
  version = 1,
  more: Partial<AiDeploymentDocument> = {},
): Promise<RunnerDocument> {
  const runner = await createRunner({ _id: newId(), tenant_id, workflow_id, version })
  await transaction(async () => {
    await new AiDeployment({
      _id: runner._id,
      tenant_id,
      name: `${workflow_id}-${version}-${runner._id.slice(-12)}`,
      status: 'ready',
      workflow_id,
      version,
      spec_sha256: '0',
      cpu_cores: 0.25,
      memory_mib: 256,
      ...more,
    }).save()
  })
  return runner
}

/** A canary of the same kind, which has just been changed. `weight`: percent. */
export const insertCanary = (
  tenant_id: string,
  workflow_id: string,
  version: number,
  weight: number,
  bounds: CanaryTerms['bounds'] = { p95_ratio: null, cost_ratio: null },
): Promise<RunnerDocument> =>
  insertDeployment(tenant_id, workflow_id, version, {
    role: 'canary',
    canary: { weight, bounds, since: new Date(), sent_back: null },
  })

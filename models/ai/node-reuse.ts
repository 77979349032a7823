import { inputHash, namedBy } from '../../lib/ai/node-input.ts'
import type { NodeSpec } from '../../lib/ai/node-kinds.ts'
import type { Plan } from '../../lib/ai/plan.ts'
import type { Spec } from '../../lib/ai/spec.ts'
import type { Given } from '../../lib/runner-protocol.ts'
import { Tool } from '../tools/tools.ts'
import { AiWorkflow } from './ai-workflows.ts'
import { AiRunNode, type AiRunNodeDocument, runNodeId } from './run-node-records.ts'
import { shareValue } from './run-values.ts'
import type { AiRunDocument } from './runs.ts'
import type { VersionUse } from './versions.ts'

// A retry takes over the outputs of the runs before it, where a node and all that is given to it are the same.

interface Version {
  tenant_id: string
  spec: Spec
  plan: Plan
  uses: VersionUse[]
}

/** Names all on which a node's output depends. */
export async function inputHashOf(version: Version, name: string, given: Given): Promise<string> {
  const node = version.spec.nodes[name] as NodeSpec
  return inputHash(version, name, await pinnedBy(version, node), given)
}

/** The things that a node names, with their versions, as they are now. */
async function pinnedBy({ tenant_id, spec, uses }: Version, node: NodeSpec): Promise<object[]> {
  const named = namedBy(spec, node)
  const its = uses.filter(({ kind, reference }) => named[kind].includes(reference))
  return Promise.all(its.map(async (use) => ({ ...use, version: await versionOf(tenant_id, use) })))
}

async function versionOf(tenant_id: string, { kind, id: _id, version }: VersionUse): Promise<number | null> {
  if (_id === null || version !== null) return version
  if (kind === 'tool') return (await Tool.findOne({ _id, tenant_id }, { version: 1 }).lean())?.version ?? null
  if (kind !== 'workflow') return null
  return (await AiWorkflow.findOne({ _id, tenant_id }, { latest_version: 1 }).lean())?.latest_version ?? null
}

type Retry = Pick<AiRunDocument, '_id' | 'tenant_id' | 'former_runs'>

/** The node of the latest run before this one that succeeded with the same input. Null: there is none. */
export async function reusableNode(
  { tenant_id, former_runs = [] }: Retry,
  node: string,
  input_sha256: string,
): Promise<AiRunNodeDocument | null> {
  if (former_runs.length === 0) return null
  const ids = former_runs.map((run) => runNodeId(run, node))
  const some = await AiRunNode.find({
    _id: { $in: ids },
    tenant_id,
    status: 'succeeded',
    input_sha256,
  }).lean()
  return some.toSorted((one, other) => ids.indexOf(one._id) - ids.indexOf(other._id))[0] ?? null
}

/** Records that a node of the run has the output of a former one. Call in the transaction that has found it. */
export async function reuseNode(
  { _id: run_id, tenant_id }: Retry,
  former: AiRunNodeDocument,
): Promise<AiRunNodeDocument> {
  const { node, output, whole, redaction_json, input_sha256, case: chosen } = former
  // The removal of its run deletes this record: one of the two comes first.
  await AiRunNode.updateOne({ _id: former._id, tenant_id }, { $inc: { reuses: 1 } })
  await shareValue(output)
  await shareValue(whole)
  const now = new Date()
  const made = new AiRunNode({
    _id: runNodeId(run_id, node),
    tenant_id,
    run_id,
    node,
    status: 'succeeded',
    case: chosen,
    output,
    ...(whole ? { whole } : {}),
    ...(redaction_json === undefined ? {} : { redaction_json }),
    input_sha256,
    reused_from: former.reused_from ?? former.run_id,
    started_at: now,
    ended_at: now,
  })
  return (await made.save()).toObject()
}

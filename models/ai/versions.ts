import mongoose, { Schema } from 'mongoose'
import type { Plan } from '../../lib/ai/plan.ts'
import type { Spec } from '../../lib/ai/spec.ts'
import { NotFound } from '../../lib/problem.ts'
import { idField } from '../resources.ts'
import { schemaOptions } from '../schemas.ts'
import { tenantScoped } from '../tenant-scope.ts'

export const useKinds = ['connector', 'tool', 'collection', 'workflow'] as const
export type UseKind = (typeof useKinds)[number]

/** Something of the tenant's that a version names. */
export interface VersionUse {
  kind: UseKind
  /** As the spec names it. */
  reference: string
  /** Null: `reference` is a provider, and a run uses the connector that is its default then. */
  id: string | null
  /** Of a workflow. Null: a run calls the version that was published last by then. */
  version: number | null
}

/** A published spec. It never changes, and goes with its workflow. */
export interface AiWorkflowVersionDocument {
  _id: string
  tenant_id: string
  workflow_id: string
  /** Counts from 1, without gaps. */
  version: number
  spec_sha256: string
  /** As JSON: their names may hold what MongoDB reads as operators. */
  spec_json: string
  plan_json: string
  uses: VersionUse[]
  created_at: Date
}

const schema = new Schema<AiWorkflowVersionDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    workflow_id: { type: String, required: true },
    version: { type: Number, required: true },
    spec_sha256: { type: String, required: true },
    spec_json: { type: String, required: true },
    plan_json: { type: String, required: true },
    uses: { type: Schema.Types.Mixed, required: true },
  },
  {
    ...schemaOptions,
    timestamps: { createdAt: 'created_at', updatedAt: false },
    collection: 'ai_workflow_versions',
  },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, workflow_id: 1, version: -1 }, { unique: true })
export const AiWorkflowVersion = mongoose.model<AiWorkflowVersionDocument>('AiWorkflowVersion', schema)

/** Throws NotFound. */
export async function versionNumbered(
  { _id: workflow_id, tenant_id }: { _id: string; tenant_id: string },
  version: number,
): Promise<AiWorkflowVersionDocument> {
  const found = await AiWorkflowVersion.findOne({ tenant_id, workflow_id, version }).lean()
  if (!found) throw new NotFound('version')
  return found
}

export const specOf = ({ spec_json }: AiWorkflowVersionDocument): Record<string, unknown> =>
  JSON.parse(spec_json) as Record<string, unknown>

export const planOf = ({ plan_json }: AiWorkflowVersionDocument): Plan => JSON.parse(plan_json) as Plan

/** What a version says, read. Do not change it: others have it too. */
export interface ReadVersion extends Omit<AiWorkflowVersionDocument, 'spec_json' | 'plan_json'> {
  spec: Spec
  plan: Plan
}

// Each request of a runner asks for its version, which never changes. That it is still there, its run says.
const known = new Map<string, { version: ReadVersion; chars: number }>()
/** Of the JSON of all that are known: the largest version has 1.5 MiB. */
const mostChars = 4 * 1024 ** 2
let allChars = 0

/** A version of which a run, or a workflow, is known to be there. Throws NotFound. */
export async function knownVersion(
  { _id: workflow_id, tenant_id }: { _id: string; tenant_id: string },
  number: number,
): Promise<ReadVersion> {
  const key = `${tenant_id} ${workflow_id} ${number}`
  const found = known.get(key)
  if (found) return found.version
  const { spec_json, plan_json, ...its } = await versionNumbered({ _id: workflow_id, tenant_id }, number)
  const version = { ...its, spec: JSON.parse(spec_json) as Spec, plan: JSON.parse(plan_json) as Plan }
  const chars = spec_json.length + plan_json.length
  if (!known.has(key)) allChars += chars
  known.set(key, { version, chars })
  for (const [oldest, one] of known) {
    if (allChars <= mostChars) break
    known.delete(oldest)
    allChars -= one.chars
  }
  return version
}

import mongoose, { Schema } from 'mongoose'
import { hashOf } from '../../lib/ai/canonical.ts'
import { NotFound, RevisionDiffers } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { needQuota, tenantResource } from '../identity/tenants.ts'
import { lockParent } from '../parents.ts'
import { documentOptions, idField, named } from '../resources.ts'
import { tenantScoped } from '../tenant-scope.ts'

// AI workflows, which tenants write: not the workflows of Temporal that carry out operations. Requests call them
// workflows.

/** `draft`: nothing was published yet. */
export const aiWorkflowStates = ['draft', 'published'] as const
export type AiWorkflowState = (typeof aiWorkflowStates)[number]

/** A workflow with its draft. */
export interface AiWorkflowDocument {
  _id: string
  tenant_id: string
  /** Unique in the tenant. */
  name: string
  description: string
  tags: Record<string, string>
  status: AiWorkflowState
  /** The draft, as JSON: its names may hold what MongoDB reads as operators. */
  spec_json: string
  /** Of the draft's canonical JSON. */
  spec_sha256: string
  /** Counts the changes of name, description, tags and draft. */
  revision: number
  /** The version published last, and its hash. Null: there is none. */
  latest_version: number | null
  latest_sha256: string | null
  /** What that version uses (uses.ts). */
  uses: string[]
  /** Of all its eval cases (lib/ai/eval-cases.ts). Null: it has none. */
  case_set_sha256: string | null
  /** A canary is promoted only after its eval cases have passed. */
  require_eval_pass: boolean
  /** Its runs that have not ended. */
  runs_open: number
  /** Counts the locks taken on it, as a parent's. */
  turns: number
  created_at: Date
  updated_at: Date
}

const schema = new Schema<AiWorkflowDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    name: { type: String, required: true },
    description: { type: String, default: '' },
    tags: { type: Schema.Types.Mixed, default: {} },
    status: { type: String, required: true, enum: aiWorkflowStates },
    spec_json: { type: String, required: true },
    spec_sha256: { type: String, required: true },
    revision: { type: Number, required: true },
    latest_version: { type: Number, default: null },
    latest_sha256: { type: String, default: null },
    uses: { type: [String], default: [] },
    case_set_sha256: { type: String, default: null },
    require_eval_pass: { type: Boolean, default: false },
    runs_open: { type: Number, default: 0 },
    turns: { type: Number, default: 0 },
  },
  { ...documentOptions, collection: 'ai_workflows' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, name: 1 }, { unique: true })
schema.index({ tenant_id: 1, created_at: -1, _id: -1 })
schema.index({ tenant_id: 1, uses: 1 })
export const AiWorkflow = mongoose.model<AiWorkflowDocument>('AiWorkflow', schema)

/** In sentences. */
export const title = 'workflow'

type Owner = Pick<AiWorkflowDocument, 'tenant_id'>
/** `draftFault` of lib/ai has found none. */
type Draft = Record<string, unknown>
type About = Pick<AiWorkflowDocument, 'name' | 'description' | 'tags'>

export const draftOf = ({ spec_json }: AiWorkflowDocument): Draft => JSON.parse(spec_json) as Draft

const stored = (spec: Draft): Pick<AiWorkflowDocument, 'spec_json' | 'spec_sha256'> => ({
  spec_json: JSON.stringify(spec),
  spec_sha256: hashOf(spec),
})

/** The tenant's workflow. Throws NotFound. */
export async function aiWorkflowOf({ tenant_id }: Owner, _id: string): Promise<AiWorkflowDocument> {
  const workflow = await AiWorkflow.findOne({ _id, tenant_id }).lean()
  if (!workflow) throw new NotFound(title)
  return workflow
}

/** Throws NameTaken, QuotaExceeded. */
export const createAiWorkflow = (
  { tenant_id }: Owner,
  { spec, ...about }: About & { spec: Draft },
): Promise<AiWorkflowDocument> =>
  named(title, about.name, () =>
    transaction(async () => {
      await lockParent(tenantResource, tenant_id, tenant_id)
      await needQuota(tenant_id, 'max_workflows', await AiWorkflow.countDocuments({ tenant_id }))
      const made = new AiWorkflow({ tenant_id, ...about, ...stored(spec), revision: 1, status: 'draft' })
      return (await made.save()).toObject()
    }, tenant_id),
  )

/** `revisions`: those that may be changed; null: any. Throws NotFound, RevisionDiffers, NameTaken. */
export async function changeAiWorkflow(
  { tenant_id }: Owner,
  _id: string,
  { spec, ...about }: { [Field in keyof About]?: About[Field] | undefined } & { spec?: Draft | undefined },
  revisions: number[] | null,
): Promise<AiWorkflowDocument> {
  const given = Object.entries(about).filter(([, value]) => value !== undefined)
  const set = { ...Object.fromEntries(given), ...(spec ? stored(spec) : {}) }
  const changed = await named(title, about.name ?? '', () =>
    AiWorkflow.findOneAndUpdate(
      { _id, tenant_id, ...atRevisions(revisions) },
      { $set: set, $inc: { revision: 1 } },
      { returnDocument: 'after' },
    ).lean(),
  )
  if (!changed) throw await refusalOf(tenant_id, _id)
  return changed
}

/**
 * Locks the workflow until the transaction ends: no other transaction locks or deletes it between. Returns it as it is. Throws
 * NotFound.
 */
export async function lockAiWorkflow({ tenant_id }: Owner, _id: string): Promise<AiWorkflowDocument> {
  const turn = { $inc: { turns: 1 } }
  const held = await AiWorkflow.findOneAndUpdate({ _id, tenant_id }, turn, { timestamps: false }).lean()
  if (!held) throw new NotFound(title)
  return held
}

/** Sets whether a canary needs passing evals before it is promoted. Throws NotFound. */
export async function setEvalGate(
  { tenant_id }: Owner,
  _id: string,
  require_eval_pass: boolean,
): Promise<AiWorkflowDocument> {
  const set = { $set: { require_eval_pass } }
  const changed = await AiWorkflow.findOneAndUpdate({ _id, tenant_id }, set, {
    returnDocument: 'after',
  }).lean()
  if (!changed) throw new NotFound(title)
  return changed
}

/** A condition on a workflow. Null: any revision. */
export const atRevisions = (revisions: number[] | null) =>
  revisions === null ? {} : { revision: { $in: revisions } }

/** Throws RevisionDiffers unless one of these was asked for. */
export function needRevision({ revision }: AiWorkflowDocument, revisions: number[] | null): void {
  if (revisions !== null && !revisions.includes(revision)) throw new RevisionDiffers(revision)
}

/** Why no workflow matched. Throws NotFound. */
export async function refusalOf(tenant_id: string, _id: string): Promise<RevisionDiffers> {
  const { revision } = await aiWorkflowOf({ tenant_id }, _id)
  return new RevisionDiffers(revision)
}

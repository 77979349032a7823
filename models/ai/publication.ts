import { versionOf } from '../../lib/ai/canonical.ts'
import type { Plan } from '../../lib/ai/plan.ts'
import { type Validation, validate } from '../../lib/ai/validate.ts'
import { NotFound, Problem, StateConflict } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { needQuota, tenantResource } from '../identity/tenants.ts'
import { lockParent } from '../parents.ts'
import { AiWorkflow, type AiWorkflowDocument, aiWorkflowOf, draftOf, needRevision } from './ai-workflows.ts'
import { calledBy, chainOf } from './calls.ts'
import { type Author, lookupsFor } from './lookups.ts'
import { holdUses, keyOfUse } from './uses.ts'
import {
  AiWorkflowVersion,
  type AiWorkflowVersionDocument,
  type UseKind,
  versionNumbered,
  type VersionUse,
} from './versions.ts'

/** A spec has errors: `nodes` has those of each node, `errors` those that belong to none. */
export class SpecInvalid extends Problem {
  constructor({ nodes, others }: Validation) {
    const count = Object.values(nodes).flat().length + others.length
    super(
      422,
      'workflow_invalid',
      'The workflow is invalid',
      `The spec has ${count} ${count === 1 ? 'error' : 'errors'}: \`nodes\` lists them by node`,
      {
        extensions: { nodes, errors: others },
      },
    )
  }
}

interface Checked {
  plan: Plan
  uses: VersionUse[]
}

/** Checks a spec as a draft of the workflow. Throws SpecInvalid. */
export async function checkSpec(
  author: Author,
  workflow: AiWorkflowDocument,
  spec: unknown,
): Promise<Checked> {
  const { lookups, uses } = await lookupsFor(author, workflow)
  const validation = await validate(spec, lookups)
  if (!validation.valid) throw new SpecInvalid(validation)
  return { plan: validation.valid.plan, uses: uses() }
}

const attempts = 5

/**
 * Publishes the draft as the next version, or finds the latest version if the draft is the same. `mayUse` throws if the
 * caller must not have work done with such things. Throws NotFound, RevisionDiffers, SpecInvalid, QuotaExceeded.
 */
export async function publish(
  author: Author,
  id: string,
  revisions: number[] | null,
  mayUse: (kinds: Set<UseKind>) => void,
): Promise<{ version: AiWorkflowVersionDocument; isNew: boolean }> {
  for (let attempt = 0; attempt < attempts; attempt++) {
    const workflow = await aiWorkflowOf(author, id)
    needRevision(workflow, revisions)
    const { latest_version, latest_sha256, spec_sha256 } = workflow
    if (latest_version !== null && latest_sha256 === spec_sha256)
      return { version: await versionNumbered(workflow, latest_version), isNew: false }
    const checked = await checkSpec(author, workflow, draftOf(workflow))
    mayUse(new Set(checked.uses.map(({ kind }) => kind)))
    const published = await keep(workflow, checked)
    if (published) return published
  }
  throw new Problem(409, 'state_conflict', 'The draft was changed meanwhile', 'Publish it again')
}

/**
 * Keeps the version. Null if the draft, or something that it uses, is another one than was checked. Publications of a tenant
 * are one after another: two of them cannot make a cycle of workflows together.
 */
const keep = (
  { _id, tenant_id, revision }: AiWorkflowDocument,
  { plan, uses }: Checked,
): Promise<{ version: AiWorkflowVersionDocument; isNew: boolean } | null> =>
  transaction(async () => {
    await lockParent(tenantResource, tenant_id, tenant_id)
    const held = await AiWorkflow.findOneAndUpdate(
      { _id, tenant_id, revision },
      { $inc: { turns: 1 } },
      { timestamps: false, returnDocument: 'after' },
    ).lean()
    if (!held) return null
    const { latest_version, latest_sha256 } = held
    const latest =
      latest_version === null ? null : { number: latest_version, spec_sha256: latest_sha256 ?? '' }
    const { number, spec_sha256, isNew } = versionOf(draftOf(held), latest)
    if (!isNew) return { version: await versionNumbered(held, number), isNew }
    if (!(await canHold(held, uses))) return null
    const used = await AiWorkflowVersion.countDocuments({ tenant_id })
    await needQuota(tenant_id, 'max_workflow_versions', used)
    const version = await new AiWorkflowVersion({
      tenant_id,
      workflow_id: _id,
      version: number,
      spec_sha256,
      spec_json: held.spec_json,
      plan_json: JSON.stringify(plan),
      uses,
    }).save()
    await AiWorkflow.updateOne(
      { _id, tenant_id },
      {
        $set: {
          status: 'published',
          latest_version: number,
          latest_sha256: spec_sha256,
          uses: [...new Set(uses.map(keyOfUse))],
        },
      },
    )
    return { version: version.toObject(), isNew }
  }, tenant_id)

/** Whether all that the version uses is there still, and no workflow that it calls has begun to call it. */
async function canHold({ _id, tenant_id }: AiWorkflowDocument, uses: VersionUse[]): Promise<boolean> {
  try {
    await holdUses(tenant_id, uses)
  } catch (error) {
    if (error instanceof NotFound || error instanceof StateConflict) return false
    throw error
  }
  const { calls } = await chainOf(tenant_id, calledBy({ uses }))
  return !calls.includes(_id)
}

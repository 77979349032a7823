import { bounds } from '../../lib/ai/bounds.ts'
import { AiWorkflow } from './ai-workflows.ts'
import { AiWorkflowVersion, type AiWorkflowVersionDocument, type VersionUse } from './versions.ts'

// Which workflows a published one calls. It is asked anew each time: who calls without a version calls what was published
// last.

export interface Called {
  id: string
  /** Null: the one published last. */
  version: number | null
}
type Caller = Pick<AiWorkflowVersionDocument, 'workflow_id' | 'version' | 'uses'>

/** How many workflows are within each other from these on, one more than the bound if more, and the ids of all. */
export async function chainOf(
  tenant_id: string,
  first: Called[],
): Promise<{ depth: number; calls: string[] }> {
  const calls = new Set<string>()
  let depth = 0
  let level = await versionsOf(tenant_id, first)
  while (level.length > 0 && depth <= bounds.workflowDepth) {
    depth++
    for (const { workflow_id } of level) calls.add(workflow_id)
    level = await versionsOf(tenant_id, level.flatMap(calledBy))
  }
  return { depth, calls: [...calls] }
}

/** The workflows among what a version uses. */
export const calledBy = ({ uses }: { uses: VersionUse[] }): Called[] =>
  uses.flatMap(({ kind, id, version }) => (kind === 'workflow' && id !== null ? [{ id, version }] : []))

/** Those that are there, each once. */
async function versionsOf(tenant_id: string, called: Called[]): Promise<Caller[]> {
  const ofLatest = called.filter(({ version }) => version === null).map(({ id }) => id)
  const latest = ofLatest.length
    ? await AiWorkflow.find({ tenant_id, _id: { $in: ofLatest } }, { latest_version: 1 }).lean()
    : []
  const wanted = [
    ...called.flatMap(({ id, version }) => (version === null ? [] : [{ workflow_id: id, version }])),
    ...latest.flatMap(({ _id, latest_version }) =>
      latest_version === null ? [] : [{ workflow_id: _id, version: latest_version }],
    ),
  ]
  if (wanted.length === 0) return []
  return AiWorkflowVersion.find({ tenant_id, $or: wanted }, { workflow_id: 1, version: 1, uses: 1 }).lean()
}

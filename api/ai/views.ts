import { z } from 'zod'
import { type AiWorkflowDocument, aiWorkflowStates, draftOf } from '../../models/ai/ai-workflows.ts'
import { Id, Timestamp, time } from '../fields.ts'

export const path = '/api/v1/workflows'

export const Json = z.record(z.string(), z.unknown())

const shown = {
  id: Id,
  tenant_id: Id,
  name: z.string(),
  description: z.string(),
  tags: z.record(z.string(), z.string()),
  status: z.enum(aiWorkflowStates).describe('`draft`: nothing was published yet'),
  revision: z.int().describe('Counts the changes of name, description, tags and draft; If-Match names it'),
  spec_sha256: z.string().describe('Of the draft’s canonical JSON (RFC 8785)'),
  latest_version: z.int().nullable().describe('The version published last'),
  latest_sha256: z
    .string()
    .nullable()
    .describe('Of that version; the same as `spec_sha256`: the draft has not changed since'),
  created_at: Timestamp,
  updated_at: Timestamp,
}

/** In lists: without the draft, which may be large. */
export const WorkflowSummaryView = z.strictObject(shown).meta({ id: 'WorkflowSummary' })

export const WorkflowView = z
  .strictObject({ ...shown, spec: Json.describe('The draft') })
  .meta({ id: 'Workflow' })

export const toSummary = (workflow: AiWorkflowDocument): z.output<typeof WorkflowSummaryView> => ({
  id: workflow._id,
  tenant_id: workflow.tenant_id,
  name: workflow.name,
  description: workflow.description,
  tags: workflow.tags,
  status: workflow.status,
  revision: workflow.revision,
  spec_sha256: workflow.spec_sha256,
  latest_version: workflow.latest_version,
  latest_sha256: workflow.latest_sha256,
  created_at: time(workflow.created_at),
  updated_at: time(workflow.updated_at),
})

export const toView = (workflow: AiWorkflowDocument): z.output<typeof WorkflowView> => ({
  ...toSummary(workflow),
  spec: draftOf(workflow),
})

import { z } from 'zod'
import { draftFault } from '../../lib/ai/validate-form.ts'
import {
  AiWorkflow,
  aiWorkflowOf,
  changeAiWorkflow,
  createAiWorkflow,
  deleteAiWorkflow,
} from '../../models/ai/ai-workflows.ts'
import { byId, Name, Tags } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { path, toSummary, toView, WorkflowSummaryView, WorkflowView } from './views.ts'

/** A draft may be unfinished or wrong, and only bounds keep it from being stored. */
export const Draft = z
  .custom<Record<string, unknown>>()
  .check((context) => {
    const fault = draftFault(context.value)
    if (fault) context.issues.push({ code: 'custom', input: '', path: [], message: fault[1] })
  })
  .meta({ type: 'object', additionalProperties: {} })
  .describe('A spec (docs/ai-workflows.md). It may be unfinished: `validate` and `publish` look at it')

const about = {
  name: Name,
  description: z.string().max(2000),
  tags: Tags,
}

/** The HTTP operations on AI workflows and their drafts. */
export const aiWorkflows = [
  list({
    path,
    permission: 'workflows:read',
    summary: 'List AI workflows, without their drafts',
    model: AiWorkflow,
    view: WorkflowSummaryView,
    toView: toSummary,
    scope: ({ tenant_id }) => ({ tenant_id }),
  }),

  operation({
    method: 'POST',
    path,
    permission: 'workflows:create',
    summary: 'Create an AI workflow with a draft of its spec',
    body: z.strictObject({
      name: about.name,
      description: about.description.default(''),
      tags: about.tags.default({}),
      spec: Draft.default({}),
    }),
    responses: { 201: WorkflowView },
    revised: true,
    handle: async ({ caller, body }) => {
      const workflow = await createAiWorkflow(caller, body)
      return { location: `${path}/${workflow._id}`, body: toView(workflow) }
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{id}`,
    permission: 'workflows:read',
    summary: 'Get an AI workflow with its draft',
    params: byId,
    responses: { 200: WorkflowView },
    revised: true,
    handle: async ({ caller, params }) => toView(await aiWorkflowOf(caller, params.id)),
  }),

  operation({
    method: 'PUT',
    path: `${path}/{id}`,
    permission: 'workflows:update',
    summary: 'Change an AI workflow or its draft; published versions stay as they are',
    params: byId,
    body: z.strictObject({ ...about, spec: Draft }).partial(),
    responses: { 200: WorkflowView },
    revised: true,
    handle: async ({ caller, params, body, revisions }) =>
      toView(await changeAiWorkflow(caller, params.id, body, revisions)),
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{id}`,
    permission: 'workflows:delete',
    summary: 'Delete an AI workflow',
    params: byId,
    responses: { 204: null },
    revised: true,
    handle: ({ caller, params, revisions }) => deleteAiWorkflow(caller, params.id, revisions),
  }),
]

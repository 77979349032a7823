import { z } from 'zod'
import { AiWorkflow, aiWorkflowOf, changeAiWorkflow, createAiWorkflow } from '../../models/ai/ai-workflows.ts'
import { deleteAiWorkflow } from '../../models/ai/deletion.ts'
import { byId, forced, Name, Tags } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { Draft, path, toSummary, toView, WorkflowSummaryView, WorkflowView } from './views.ts'

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
      return { location: `${path}/${workflow._id}`, body: await toView(workflow) }
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
    summary: 'Delete an AI workflow that no other calls, with its versions and eval cases',
    params: byId,
    query: forced,
    responses: { 204: null },
    revised: true,
    handle: ({ caller, params, query, revisions }) => deleteAiWorkflow(caller, params.id, revisions, query),
  }),
]

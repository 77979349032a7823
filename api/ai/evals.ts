import { z } from 'zod'
import { Assertion } from '../../lib/ai/assertions.ts'
import { bounds } from '../../lib/ai/bounds.ts'
import { Constant } from '../../lib/ai/fields.ts'
import { valueFault } from '../../lib/ai/validate-form.ts'
import { InvalidInput, PermissionDenied } from '../../lib/problem.ts'
import { type AiWorkflowDocument, aiWorkflowOf, setEvalGate } from '../../models/ai/ai-workflows.ts'
import {
  AiEvalCase,
  assertionOf,
  deleteEvalCase,
  type EvalCaseDocument,
  inputOf,
  putEvalCase,
} from '../../models/ai/eval-cases.ts'
import { byId, Id, Name, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { type Caller, operation } from '../operation.ts'
import { path, shownOfEvals } from './views.ts'

/** What may be stored: `schema` says which form it has. */
const storable = <T extends z.ZodType>(schema: T): T =>
  schema.check((context) => {
    const fault = valueFault(context.value, bounds.caseBytes)
    if (fault) context.issues.push({ code: 'custom', input: '', path: [], message: fault[1] })
  })

const Repeats = z.int().min(1).max(bounds.repeats)

const EvalCaseView = z
  .strictObject({
    id: Id,
    workflow_id: Id,
    name: z.string(),
    input: z.unknown().describe('The input of the runs'),
    assertion: Assertion,
    repeats: Repeats.describe('How many times the case is run'),
    min_pass: Repeats.describe('How many of these runs must pass'),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'WorkflowEvalCase' })

const toView = (evalCase: EvalCaseDocument): z.output<typeof EvalCaseView> => ({
  id: evalCase._id,
  workflow_id: evalCase.workflow_id,
  name: evalCase.name,
  input: inputOf(evalCase),
  assertion: assertionOf(evalCase),
  repeats: evalCase.repeats,
  min_pass: evalCase.min_pass,
  created_at: time(evalCase.created_at),
  updated_at: time(evalCase.updated_at),
})

const GateView = z.strictObject({ workflow_id: Id, ...shownOfEvals }).meta({ id: 'WorkflowEvalGate' })

const toGate = (workflow: AiWorkflowDocument): z.output<typeof GateView> => ({
  workflow_id: workflow._id,
  require_eval_pass: workflow.require_eval_pass,
  case_set_sha256: workflow.case_set_sha256,
})

/** Who runs the cases acts on the connector of a judge, so who names one must be allowed to. */
function needConnector({ permissions }: Caller, assertion: Assertion): void {
  const isNamed = assertion.kind === 'judge' && typeof assertion.model !== 'string'
  if (isNamed && !permissions.has('connectors:use')) throw new PermissionDenied('connectors:use')
}

/** The HTTP operations on the eval cases of AI workflows, and on their gate. */
export const aiEvals = [
  list({
    path: `${path}/{id}/evals`,
    permission: 'workflows:read',
    summary: 'List the eval cases of an AI workflow',
    params: byId,
    model: AiEvalCase,
    view: EvalCaseView,
    toView,
    scope: async (caller, { id }) => ({
      tenant_id: caller.tenant_id,
      workflow_id: (await aiWorkflowOf(caller, id))._id,
    }),
  }),

  operation({
    method: 'POST',
    path: `${path}/{id}/evals`,
    permission: 'workflows:update',
    summary: 'Create an eval case, or replace the one with this id or name (200)',
    params: byId,
    body: z.strictObject({
      id: Id.nullable().default(null).describe('The id of the case to replace'),
      name: Name.nullable()
        .default(null)
        .describe('Unique in the workflow. Null with an `id`: the name stays'),
      input: storable(Constant).describe('The input of the runs: any JSON'),
      assertion: storable(Assertion),
      repeats: Repeats.default(1).describe('How many times the case is run'),
      min_pass: Repeats.nullable().default(null).describe('How many of these runs must pass; null: all'),
    }),
    responses: { 200: EvalCaseView, 201: EvalCaseView },
    async handle({ caller, params, body: { min_pass, ...fields } }) {
      needConnector(caller, fields.assertion)
      if (min_pass !== null && min_pass > fields.repeats)
        throw new InvalidInput(422, [{ pointer: '/min_pass', message: 'is more than `repeats`' }])
      const put = { ...fields, min_pass: min_pass ?? fields.repeats }
      const { evalCase, isNew } = await putEvalCase(caller, params.id, put)
      const body = toView(evalCase)
      return isNew ? { location: `${path}/${params.id}/evals/${evalCase._id}`, body } : body
    },
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{id}/evals/{caseId}`,
    permission: 'workflows:update',
    summary: 'Delete an eval case',
    params: z.strictObject({ id: Id, caseId: Id }),
    responses: { 204: null },
    handle: ({ caller, params: { id, caseId } }) => deleteEvalCase(caller, id, caseId),
  }),

  operation({
    method: 'PUT',
    path: `${path}/{id}/eval-gate`,
    permission: 'workflows:publish',
    summary: 'Set whether a canary is promoted only after its eval cases have passed',
    params: byId,
    body: z.strictObject({ require_eval_pass: z.boolean() }),
    responses: { 200: GateView },
    handle: async ({ caller, params, body }) =>
      toGate(await setEvalGate(caller, params.id, body.require_eval_pass)),
  }),
]

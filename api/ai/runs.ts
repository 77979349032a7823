import { z } from 'zod'
import { runWorkflowId } from '../../lib/operation-workflows.ts'
import { aiWorkflowOf } from '../../models/ai/ai-workflows.ts'
import { acceptAiRun } from '../../models/ai/run-acceptance.ts'
import { endModelCalls } from '../../models/ai/run-models.ts'
import { nodeOf } from '../../models/ai/run-node-ends.ts'
import { runEnds } from '../../models/ai/run-watch.ts'
import { requestRunCancel, runOf, runsBefore } from '../../models/ai/runs.ts'
import { byId, closed, Id } from '../fields.ts'
import { type Operation, operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'
import {
  RunNodeOutputView,
  RunSummaryView,
  RunView,
  toRun,
  toRunNodeWithOutput,
  toRunSummary,
} from './run-views.ts'
import { path } from './views.ts'

const runs = `${path}/{id}/runs`
const ofRun = z.strictObject({ id: Id, run: Id })

const wait = z.strictObject({
  wait: z.coerce.number().min(0).max(60).default(0).describe('Seconds to wait for the run to end'),
})

/** The HTTP operations on runs of AI workflows. */
export const makeAiRuns = ({ cancel }: Pick<OperationsContext, 'cancel'>): Operation[] => [
  operation({
    method: 'POST',
    path: `${path}/{id}/run`,
    permission: 'workflows:run',
    summary: 'Run the deployed version; the answer comes at once or when the run ends',
    lasts: 'wait',
    params: byId,
    query: wait,
    body: z.strictObject({
      input: z.unknown().describe('JSON that fits the version’s `input_schema`, at most 1 MiB'),
      canary_key: z
        .string()
        .min(1)
        .max(200)
        .nullable()
        .default(null)
        .describe('Runs with the same key go to the same deployment while a canary takes a part of the runs'),
    }),
    responses: { 201: RunView },
    async handle({ caller: { tenant_id, id }, params, body }) {
      const { input = null, canary_key } = body
      const run = await acceptAiRun({ tenant_id, id }, params.id, { input, canary_key })
      return { location: `${path}/${params.id}/runs/${run._id}`, body: await toRun(run) }
    },
    async awaits(answer, { caller, query, response }) {
      if (query.wait === 0) return answer
      const { id } = answer.body
      const ended = await runEnds.awaitEnd(caller.tenant_id, id, query.wait * 1000, closed(response))
      return { location: answer.location, body: await toRun(ended) }
    },
  }),

  operation({
    method: 'GET',
    path: runs,
    permission: 'workflows:read',
    summary: 'List the runs of an AI workflow, newest first, without their values',
    params: byId,
    query: z.strictObject({
      before: Id.optional().describe('The `next` of the previous page; this page has older runs'),
      limit: z.coerce
        .number()
        .int()
        .min(1)
        .default(20)
        .transform((limit) => Math.min(limit, 100))
        .describe('Items to return; values above 100 are capped at 100'),
    }),
    responses: {
      200: z.strictObject({
        items: z.array(RunSummaryView),
        next: Id.nullable().describe(
          'The value of `before` for the next page; null: there are no older runs',
        ),
      }),
    },
    async handle({ caller, params, query: { before = null, limit } }) {
      const workflow = await aiWorkflowOf(caller, params.id)
      const some = await runsBefore(workflow, before, limit + 1)
      const items = some.slice(0, limit).map(toRunSummary)
      return { items, next: some.length > limit ? (items.at(-1)?.id ?? null) : null }
    },
  }),

  operation({
    method: 'GET',
    path: `${runs}/{run}`,
    permission: 'workflows:read',
    summary: 'Get a run with its nodes, at once or when it ends',
    lasts: 'wait',
    params: ofRun,
    query: wait,
    responses: { 200: RunView },
    async handle({ caller, params, query, http: { response } }) {
      const run = await runOf(caller.tenant_id, params.id, params.run)
      if (query.wait === 0 || !run.open) return toRun(run)
      return toRun(await runEnds.awaitEnd(caller.tenant_id, run._id, query.wait * 1000, closed(response)))
    },
  }),

  operation({
    method: 'GET',
    path: `${runs}/{run}/nodes/{node}`,
    permission: 'workflows:read',
    summary: 'Get a node of a run with its output',
    params: z.strictObject({ id: Id, run: Id, node: z.string() }),
    responses: { 200: RunNodeOutputView },
    async handle({ caller, params }) {
      const run = await runOf(caller.tenant_id, params.id, params.run)
      return toRunNodeWithOutput(await nodeOf(run, params.node))
    },
  }),

  operation({
    method: 'POST',
    path: `${runs}/{run}/cancel`,
    permission: 'workflows:run',
    summary: 'Cancel a run: no more nodes start, and running nodes are ended',
    params: ofRun,
    responses: { 200: RunView },
    async handle({ caller, params }) {
      const run = await requestRunCancel(caller.tenant_id, params.id, params.run)
      await endModelCalls(run)
      cancel(runWorkflowId(run._id))
      return toRun(run)
    },
  }),
]

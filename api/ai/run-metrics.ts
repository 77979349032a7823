import { z } from 'zod'
import { aiWorkflowOf } from '../../models/ai/ai-workflows.ts'
import { mostCounted, type RunMetrics, runMetricsOf } from '../../models/ai/run-metrics.ts'
import { byId, Id, Timestamp, time } from '../fields.ts'
import { operation } from '../operation.ts'
import { path } from './views.ts'

const shown = {
  runs: z.int().describe('Runs that ended, including cancelled ones'),
  succeeded: z.int(),
  failed: z.int(),
  cancelled: z.int(),
  p50_ms: z
    .int()
    .nullable()
    .describe('The median duration of runs that succeeded or failed, in ms; null: there were none'),
  p95_ms: z.int().nullable(),
  tokens: z.int().describe('Tokens of their model calls'),
  cost_nano_usd: z.int().describe('The cost of calls with a known price, in billionths of a dollar'),
}

const MetricsView = z
  .strictObject({
    from: Timestamp,
    to: Timestamp,
    is_complete: z
      .boolean()
      .describe(`False: more than ${mostCounted} runs ended, and only the newest are counted`),
    ...shown,
    deployments: z
      .array(z.strictObject({ deployment_id: Id, version: z.int(), ...shown }))
      .describe('The deployments that took these runs, including removed ones'),
  })
  .meta({ id: 'WorkflowMetrics' })

const toShown = (its: RunMetrics) => ({
  runs: its.runs,
  succeeded: its.succeeded,
  failed: its.failed,
  cancelled: its.cancelled,
  p50_ms: its.p50_ms,
  p95_ms: its.p95_ms,
  tokens: its.tokens,
  cost_nano_usd: its.cost_nano_usd,
})

/** The HTTP operation on what the runs of an AI workflow have taken. */
export const aiRunMetrics = [
  operation({
    method: 'GET',
    path: `${path}/{id}/metrics`,
    permission: 'workflows:read',
    summary: 'Get the number of runs of an AI workflow, with times, tokens and cost, by deployment',
    params: byId,
    query: z.strictObject({
      window_sec: z.coerce
        .number()
        .int()
        .min(60)
        .max(30 * 86_400)
        .default(3_600)
        .describe('The length of the window in seconds; runs that ended in it are counted'),
    }),
    responses: { 200: MetricsView },
    async handle({ caller, params, query: { window_sec } }) {
      const workflow = await aiWorkflowOf(caller, params.id)
      const to = new Date()
      const from = new Date(to.getTime() - window_sec * 1000)
      const { is_complete, all, deployments } = await runMetricsOf(workflow, from)
      return {
        from: time(from),
        to: time(to),
        is_complete,
        ...toShown(all),
        deployments: deployments.map((one) => ({
          deployment_id: one.deployment_id,
          version: one.version,
          ...toShown(one),
        })),
      }
    },
  }),
]

import { z } from 'zod'
import { aiWorkflowOf } from '../../models/ai/ai-workflows.ts'
import { acceptAiEval } from '../../models/ai/eval-acceptance.ts'
import {
  type AiEvalDocument,
  aiEvalStates,
  comparedOf,
  evalTargets,
  resultOf,
  resultsBefore,
} from '../../models/ai/evals.ts'
import { accepting } from '../accept.ts'
import { byId, Id, Timestamp, time } from '../fields.ts'
import { operation } from '../operation.ts'
import { path } from './views.ts'

const Role = z.enum(evalTargets)
const shown = {
  id: Id,
  workflow_id: Id,
  deployment_id: Id,
  role: Role.describe('The role of the deployment when its cases were run'),
  version: z.int().min(1),
  spec_sha256: z.string(),
  case_set_sha256: z.string().describe('SHA-256 of the cases that are run; later changes do not count'),
}

const toShown = (its: AiEvalDocument) => ({
  id: its._id,
  workflow_id: its.workflow_id,
  deployment_id: its.deployment_id,
  role: its.role,
  version: its.version,
  spec_sha256: its.spec_sha256,
  case_set_sha256: its.case_set_sha256,
})

const EvalView = z
  .strictObject({
    ...shown,
    status: z.enum(aiEvalStates.all).describe('`judged`: it has a result'),
    status_reason: z.string().nullable(),
    operation_id: Id.nullable().describe('The open operation'),
    runs: z.int().describe('The number of runs: all repeats of all cases'),
    created_at: Timestamp,
  })
  .meta({ id: 'WorkflowEval' })

const toView = (its: AiEvalDocument): z.output<typeof EvalView> => ({
  ...toShown(its),
  status: its.status,
  status_reason: its.status_reason,
  operation_id: its.operation_id,
  runs: its.runs,
  created_at: time(its.created_at),
})

const count = z.int().min(0)

const AttemptView = z.strictObject({
  run_id: Id.nullable().describe('The run; null: the version refused the input'),
  outcome: z.enum(['pass', 'fail', 'error']),
  reasons: z
    .string()
    .nullable()
    .describe('The judge’s reasons, cut at 1,000 characters; null: no judge gave a verdict'),
  error: z
    .strictObject({ code: z.string(), message: z.string() })
    .nullable()
    .describe('Why the run failed, or why there is no result'),
})

const CaseView = z.strictObject({
  case_id: Id,
  name: z.string(),
  repeats: z.int(),
  min_pass: z.int(),
  verdict: z
    .enum(['passed', 'failed', 'error'])
    .describe('`error`: too few attempts have a result to decide'),
  passes: count,
  fails: count,
  errors: count.describe('Attempts without a result'),
  attempts: z.array(AttemptView).describe('One attempt for each repeat'),
})

const ComparedView = z.strictObject({
  eval_id: Id.describe('The other result'),
  deployment_id: Id,
  version: z.int(),
  better: count.describe('Cases of which more attempts passed than in the other result'),
  worse: count,
  same: count,
  unknown: count.describe('Cases with an error'),
  p_value: z.number().describe('The chance of such a difference if both are equally good (sign test)'),
  verdict: z.enum(['better', 'worse', 'undecided']).describe('`undecided`: this chance is 5 % or more'),
})

const ResultView = z
  .strictObject({
    ...shown,
    verdict: z.enum(['passed', 'failed', 'inconclusive']),
    passed: count.describe('The number of cases that passed'),
    failed: count,
    errors: count,
    pass_rate: z
      .strictObject({ low: z.number(), high: z.number() })
      .describe('The 95 % confidence interval (Wilson) of the share of such cases that pass'),
    cases: z.array(CaseView),
    compared: ComparedView.nullable().describe(
      'The comparison with the newest other result of the same cases on the primary; null: there is none',
    ),
    tokens: z.int().describe('Tokens of its runs and its judges'),
    cost_nano_usd: z.int().describe('The cost of calls with a known price, in billionths of a dollar'),
    started_at: Timestamp,
    ended_at: Timestamp,
  })
  .meta({ id: 'WorkflowEvalResult' })

function toResult(its: AiEvalDocument): z.output<typeof ResultView> {
  const result = resultOf(its)
  const compared = comparedOf(its)
  return {
    ...toShown(its),
    verdict: result.verdict,
    passed: result.passed,
    failed: result.failed,
    errors: result.errors,
    pass_rate: { low: result.pass_rate.low, high: result.pass_rate.high },
    cases: result.cases.map((one) => ({
      case_id: one.case_id,
      name: one.name,
      repeats: one.repeats,
      min_pass: one.min_pass,
      verdict: one.verdict,
      passes: one.passes,
      fails: one.fails,
      errors: one.errors,
      attempts: one.attempts.map(({ run_id, outcome, reasons, error }) => ({
        run_id,
        outcome,
        reasons,
        error: error && { code: error.code, message: error.message },
      })),
    })),
    compared: compared && {
      eval_id: compared.eval_id,
      deployment_id: compared.deployment_id,
      version: compared.version,
      better: compared.better,
      worse: compared.worse,
      same: compared.same,
      unknown: compared.unknown,
      p_value: compared.p_value,
      verdict: compared.verdict,
    },
    tokens: its.tokens,
    cost_nano_usd: its.cost_nano_usd,
    started_at: time(its.created_at),
    ended_at: time(its.ended_at ?? its.updated_at),
  }
}

/** The HTTP operations that run the eval cases of AI workflows, and show what came of it. */
export const aiEvalRuns = [
  operation({
    method: 'POST',
    path: `${path}/{id}/evals/run`,
    permission: 'workflows:run',
    summary: 'Run all eval cases of an AI workflow on its primary or canary deployment',
    params: byId,
    body: z.strictObject({ target: Role.default('primary') }).prefault({}),
    responses: { 202: EvalView },
    handle: ({ caller, params, body }) =>
      accepting(caller, toView, (by) => acceptAiEval(by, params.id, body.target)),
  }),

  operation({
    method: 'GET',
    path: `${path}/{id}/evals/results`,
    permission: 'workflows:read',
    summary: 'List the results of an AI workflow’s eval cases, newest first',
    params: byId,
    query: z.strictObject({
      before: Id.optional().describe('The `next` of the previous page; this page has older results'),
      limit: z.coerce
        .number()
        .int()
        .min(1)
        .default(5)
        .transform((limit) => Math.min(limit, 10))
        .describe('Items to return; values above 10 are capped at 10'),
    }),
    responses: {
      200: z.strictObject({
        items: z.array(ResultView),
        next: Id.nullable().describe(
          'The value of `before` for the next page; null: there are no older results',
        ),
      }),
    },
    async handle({ caller, params, query: { before = null, limit } }) {
      const workflow = await aiWorkflowOf(caller, params.id)
      const some = await resultsBefore(workflow, before, limit + 1)
      const items = some.slice(0, limit).map(toResult)
      return { items, next: some.length > limit ? (items.at(-1)?.id ?? null) : null }
    },
  }),
]

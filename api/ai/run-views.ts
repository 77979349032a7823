import { z } from 'zod'
import { type AiRunNodeDocument, runNodeStates } from '../../models/ai/run-node-records.ts'
import { modelUsageOf, nodeUsageOf } from '../../models/ai/run-models.ts'
import { nodesOf } from '../../models/ai/run-node-ends.ts'
import { readValue, type StoredValue } from '../../models/ai/run-values.ts'
import { type AiRunDocument, type RunSummary, runStates, runTriggers } from '../../models/ai/runs.ts'
import { type ModelUsage, noModelUsage } from '../../models/llm/node-usage.ts'
import { Id, Timestamp, time, timeOrNull } from '../fields.ts'

const shownOfRun = {
  id: Id,
  workflow_id: Id,
  deployment_id: Id,
  version: z.int().min(1),
  spec_sha256: z.string(),
  trigger: z.enum(runTriggers),
  eval: z
    .strictObject({ eval_id: Id, case_id: Id, repeat: z.int().min(1) })
    .nullable()
    .describe('Which attempt at which eval case it is, if the trigger is `eval`'),
  canary_key: z.string().nullable().describe('The `canary_key` with which the run was started'),
  status: z.enum(runStates),
  error: z
    .strictObject({
      code: z.string(),
      message: z.string(),
      node: z.string().nullable().describe('The node whose failure ended the run'),
    })
    .nullable(),
  output_bytes: z.int().describe('Bytes of its nodes’ outputs and of its own'),
  cancel_requested_at: Timestamp.nullable(),
  requested_by: Id.nullable(),
  parent: z
    .strictObject({ run_id: Id, node: z.string(), item: z.int().nullable() })
    .nullable()
    .describe('The node, or item of a map, of another run that started this run'),
  retry_of: Id.nullable().describe(
    'The run that it retries, whose input it has and whose outputs it reuses; null: none',
  ),
  created_at: Timestamp,
  started_at: Timestamp.nullable(),
  ended_at: Timestamp.nullable(),
}

/** In lists: without values. */
export const RunSummaryView = z.strictObject(shownOfRun).meta({ id: 'WorkflowRunSummary' })

export const RunNodeView = z
  .strictObject({
    node: z.string(),
    status: z.enum(runNodeStates),
    attempt: z.int().nullable().describe('The last attempt; null: there was none'),
    case: z.string().nullable().describe('What a switch chose'),
    output_bytes: z.int().nullable().describe('Bytes of its output; null: it has none'),
    input_sha256: z
      .string()
      .nullable()
      .describe(
        'A hash of everything on which the output depends; a retry reuses the output of a node with the same hash',
      ),
    reused_from: Id.nullable().describe('For a retry: the run that made the output; null: this run'),
    error: z.strictObject({ code: z.string(), message: z.string() }).nullable(),
    asked: z
      .strictObject({ message: z.string(), deadline_at: Timestamp })
      .nullable()
      .describe('What a person is asked; null: the node asks nobody'),
    items: z
      .strictObject({ all: z.int(), ended: z.int(), failed: z.int() })
      .nullable()
      .describe('For a map: its items; `ended` includes `failed`'),
    child_run_id: Id.nullable().describe('The run that the node waits for, or has waited for'),
    started_at: Timestamp.nullable(),
    ended_at: Timestamp.nullable(),
  })
  .meta({ id: 'WorkflowRunNodeSummary' })

const usage = {
  tokens: z.int().describe('Tokens of its model calls, including calls in progress'),
  cost_nano_usd: z
    .int()
    .nullable()
    .describe('The cost of its model calls, in billionths of a dollar; null: the price of one is unknown'),
  prices_versions: z.array(z.string()).describe('The price lists used to calculate the cost'),
}

/** With what its calls of models took. */
export const RunNodeUsageView = z
  .strictObject({ ...RunNodeView.shape, ...usage })
  .meta({ id: 'WorkflowRunNodeUsage' })

export const RunView = z
  .strictObject({
    ...shownOfRun,
    ...usage,
    input: z.unknown(),
    output: z.unknown().describe('Null unless it succeeded'),
    nodes: z.array(RunNodeUsageView).describe('The nodes that have begun or were skipped'),
  })
  .meta({ id: 'WorkflowRun' })

export const RunNodeOutputView = z
  .strictObject({
    ...RunNodeUsageView.shape,
    output: z.unknown().describe('The output of the node; null: it has none'),
  })
  .meta({ id: 'WorkflowRunNode' })

export const toRunSummary = (run: RunSummary): z.output<typeof RunSummaryView> => ({
  id: run._id,
  workflow_id: run.workflow_id,
  deployment_id: run.deployment_id,
  version: run.version,
  spec_sha256: run.spec_sha256,
  trigger: run.trigger,
  eval: run.eval ? { eval_id: run.eval.eval_id, case_id: run.eval.case_id, repeat: run.eval.repeat } : null,
  canary_key: run.canary_key,
  status: run.status,
  error: run.error && { code: run.error.code, message: run.error.message, node: run.error.node },
  output_bytes: run.output_bytes,
  cancel_requested_at: timeOrNull(run.cancel_requested_at),
  requested_by: run.requested_by,
  parent: run.parent ? { run_id: run.parent.run_id, node: run.parent.node, item: run.parent.item } : null,
  retry_of: run.former_runs?.[0] ?? null,
  created_at: time(run.created_at),
  started_at: timeOrNull(run.started_at),
  ended_at: timeOrNull(run.ended_at),
})

export const toRunNode = (node: AiRunNodeDocument): z.output<typeof RunNodeView> => ({
  node: node.node,
  status: node.status,
  attempt: node.attempt,
  case: node.case,
  output_bytes: node.output?.bytes ?? null,
  input_sha256: node.input_sha256 ?? null,
  reused_from: node.reused_from ?? null,
  error: node.error && { code: node.error.code, message: node.error.message },
  asked: node.asked ? { message: node.asked.message, deadline_at: time(node.asked.deadline_at) } : null,
  items: node.items ? { all: node.items.all, ended: node.items.ended, failed: node.items.failed } : null,
  child_run_id: node.child_run_id ?? null,
  started_at: timeOrNull(node.started_at),
  ended_at: timeOrNull(node.ended_at),
})

const valueOf = async (value: StoredValue | null): Promise<unknown> =>
  value === null ? null : JSON.parse(await readValue(value))

const toUsage = ({ tokens, cost_nano_usd, prices_versions }: ModelUsage): ModelUsage => ({
  tokens,
  cost_nano_usd,
  prices_versions,
})

const withUsage = (
  node: AiRunNodeDocument,
  byNode: Map<string, ModelUsage>,
): z.output<typeof RunNodeUsageView> => ({
  ...toRunNode(node),
  ...toUsage(byNode.get(node.node) ?? noModelUsage),
})

export async function toRun(run: AiRunDocument): Promise<z.output<typeof RunView>> {
  // Of a run that has not begun nothing is there to be read.
  const isNew = run.status === 'queued'
  const [taken, nodes] = isNew
    ? [{ ...noModelUsage, byNode: new Map<string, ModelUsage>() }, []]
    : await Promise.all([modelUsageOf(run), nodesOf(run)])
  return {
    ...toRunSummary(run),
    ...toUsage(taken),
    input: JSON.parse(run.input_json) as unknown,
    output: run.status === 'succeeded' ? await valueOf(run.output) : null,
    nodes: nodes.map((node) => withUsage(node, taken.byNode)),
  }
}

export async function toRunNodeWithOutput(
  node: AiRunNodeDocument,
): Promise<z.output<typeof RunNodeOutputView>> {
  const byNode = await nodeUsageOf({ _id: node.run_id, tenant_id: node.tenant_id })
  return { ...withUsage(node, byNode), output: await valueOf(node.output) }
}

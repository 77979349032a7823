import mongoose, { type QueryFilter, Schema } from 'mongoose'
import { transaction } from '../database.ts'
import { schemaOptions } from '../schemas.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import type { AiWorkflowDocument } from './ai-workflows.ts'
import { AiRunCall } from './run-calls.ts'
import { AiRunNode } from './run-node-records.ts'
import { AiRunTokens } from './run-tokens.ts'
import { removeRunKey } from './redacted-values.ts'
import { dropValues } from './run-values.ts'
import { AiRun, type AiRunDocument } from './runs.ts'

/** A deleted workflow whose runs are still to be removed: there may be more than one transaction can remove. */
interface LeftRunsDocument {
  /** The workflow. */
  _id: string
  tenant_id: string
}

const schema = new Schema<LeftRunsDocument>(
  { _id: { type: String, required: true }, tenant_id: { type: String, required: true } },
  { ...schemaOptions, collection: 'ai_left_runs' },
)
tenantScoped(schema)
const LeftRuns = mongoose.model<LeftRunsDocument>('AiLeftRuns', schema)

/** Call in the transaction that deletes the workflow. */
export async function leaveRuns({
  _id,
  tenant_id,
}: Pick<AiWorkflowDocument, '_id' | 'tenant_id'>): Promise<void> {
  await new LeftRuns({ _id, tenant_id }).save()
}

const atOnce = 100

/** Removes some of these runs, with their nodes and values. Returns how many. */
export async function removeRuns(filter: QueryFilter<AiRunDocument>): Promise<number> {
  const some = await AiRun.find(filter, {
    tenant_id: 1,
    output: 1,
    whole_input: 1,
    whole_output: 1,
    redacts: 1,
  })
    .setOptions(everyTenant)
    .limit(atOnce)
    .lean()
  for (const { _id: run_id, tenant_id, output, whole_input, whole_output, redacts } of some) {
    await AiRunTokens.deleteMany({ tenant_id, run_id })
    await transaction(async () => {
      const { deletedCount } = await AiRun.deleteOne({ _id: run_id, tenant_id })
      if (!deletedCount) return
      const nodes = await AiRunNode.find({ tenant_id, run_id }, { 'output.json': 0, 'whole.json': 0 }).lean()
      const calls = await AiRunCall.find({ tenant_id, run_id }, { 'output.json': 0 }).lean()
      await dropValues([output, whole_input, whole_output, ...nodes.map(({ whole }) => whole)])
      await dropValues([...nodes, ...calls].map((one) => one.output))
      if (redacts) await removeRunKey({ _id: run_id, tenant_id })
      await AiRunCall.deleteMany({ tenant_id, run_id })
      await AiRunNode.deleteMany({ tenant_id, run_id })
    })
  }
  return some.length
}

const dayMs = 86_400_000

/** Removes some runs that ended more than `days` ago, or whose workflow is gone. Returns how many. */
export async function removeOldRuns(days: number): Promise<number> {
  const old = await removeRuns({ ended_at: { $lt: new Date(Date.now() - days * dayMs) } })
  const left = await LeftRuns.findOne().setOptions(everyTenant).lean()
  if (!left) return old
  const { _id: workflow_id, tenant_id } = left
  const removed = await removeRuns({ tenant_id, workflow_id })
  if (removed === 0) await LeftRuns.deleteOne({ _id: workflow_id, tenant_id })
  return old + Math.max(1, removed)
}

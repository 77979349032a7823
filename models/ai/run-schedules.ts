import mongoose, { Schema } from 'mongoose'
import { NotFound, Problem } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { nextTime } from '../deploy/scheduled-tasks.ts'
import { documentOptions } from '../resources.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { lockAiWorkflow } from './ai-workflows.ts'
import { acceptAiRun } from './run-acceptance.ts'
import { AiRun } from './runs.ts'

// Runs of workflows at the times of a cron expression. The clock of the workers (worker/task-clock.ts) looks for those that
// are due.

/** The schedule of a workflow, which has one at most. */
export interface AiScheduleDocument {
  /** The workflow's id. */
  _id: string
  tenant_id: string
  /** A cron expression of five fields. */
  frequency: string
  /** An IANA time zone. */
  timezone: string
  /** Of each run. */
  input_json: string
  canary_key: string | null
  /** Whether a run begins while the one before is open. */
  overlaps: boolean
  /** When it runs next. Null: never. */
  next_at: Date | null
  /** What was due last. Null: nothing yet. */
  last: LastDue | null
  /** The run that it has started last. Null: none yet. */
  last_run_id: string | null
  created_at: Date
  updated_at: Date
}

interface LastDue {
  due_at: Date
  /** Null: it was skipped. */
  run_id: string | null
  /** Why it was skipped. Null: it was not. */
  skipped: { code: string; message: string } | null
}

const schema = new Schema<AiScheduleDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    frequency: { type: String, required: true },
    timezone: { type: String, required: true },
    input_json: { type: String, required: true },
    canary_key: { type: String, default: null },
    overlaps: { type: Boolean, required: true },
    next_at: { type: Date, default: null },
    last: { type: Schema.Types.Mixed, default: null },
    last_run_id: { type: String, default: null },
  },
  { ...documentOptions, collection: 'ai_schedules' },
)
tenantScoped(schema)
schema.index({ next_at: 1 })
schema.index({ tenant_id: 1 })
export const AiSchedule = mongoose.model<AiScheduleDocument>('AiSchedule', schema)

type Fields = Pick<AiScheduleDocument, 'frequency' | 'timezone' | 'input_json' | 'canary_key' | 'overlaps'>

/** The schedule of a workflow. Null: it has none. */
export const scheduleOf = (tenant_id: string, workflow_id: string): Promise<AiScheduleDocument | null> =>
  AiSchedule.findOne({ _id: workflow_id, tenant_id }).lean()

/** Sets the schedule of a workflow. The next time is computed anew. Throws NotFound. */
export const setSchedule = (tenant_id: string, _id: string, fields: Fields): Promise<AiScheduleDocument> =>
  transaction(async () => {
    await lockAiWorkflow({ tenant_id }, _id) // a deletion comes first, or sees the schedule
    return AiSchedule.findOneAndUpdate(
      { _id, tenant_id },
      { $set: { ...fields, next_at: nextTime(fields, new Date()) } },
      { upsert: true, returnDocument: 'after' },
    ).lean()
  }, _id)

/** Throws NotFound. */
export async function removeSchedule(tenant_id: string, _id: string): Promise<void> {
  const { deletedCount } = await AiSchedule.deleteOne({ _id, tenant_id })
  if (!deletedCount) throw new NotFound('schedule')
}

/** What is due. */
type Due = Pick<AiScheduleDocument, '_id' | 'tenant_id' | 'next_at'>

/** The schedules of all tenants that are due, those that wait longest first. */
export const dueSchedules = (limit: number): Promise<Due[]> =>
  AiSchedule.find({ next_at: { $lte: new Date() } }, { tenant_id: 1, next_at: 1 })
    .setOptions(everyTenant)
    .sort({ next_at: 1 })
    .limit(limit)
    .lean()

/** A run that is later than this, because the platform was down, is left out. */
const latestMs = 10 * 60_000

const late = { code: 'too_late', message: 'The platform was down at that time' }
const stillOpen = { code: 'run_open', message: 'The previous run had not ended' }

/**
 * Accepts the run of a schedule that is due, and sets the next time, together. What cannot be run is skipped, and the schedule
 * says why. Nothing happens if another worker has done so.
 */
export async function beginDueRun(due: Due): Promise<void> {
  try {
    await settleDue(due, runOrSkip)
  } catch (error) {
    if (!(error instanceof Problem) || error.status >= 500) throw error
    const { code, title, detail, errors: [fault] = [] } = error.document()
    const why = fault ? `${fault.pointer} ${fault.message}` : detail
    await settleDue(due, async () => ({ code, message: why ? `${title}: ${why}` : title }))
  }
}

type Skipped = LastDue['skipped']

const settleDue = (
  { _id, tenant_id, next_at: due_at }: Due,
  outcome: (schedule: AiScheduleDocument, due_at: Date) => Promise<string | NonNullable<Skipped>>,
): Promise<void> =>
  transaction(async () => {
    const schedule = await AiSchedule.findOne({ _id, tenant_id, next_at: due_at }).lean()
    if (!schedule || !due_at) return
    const result = await outcome(schedule, due_at)
    const run_id = typeof result === 'string' ? result : null
    const last: LastDue = { due_at, run_id, skipped: typeof result === 'string' ? null : result }
    const next_at = nextTime(schedule, new Date())
    // Of two workers at once, the one that is second finds another time.
    await AiSchedule.updateOne(
      { _id, tenant_id, next_at: due_at },
      { $set: { next_at, last, ...(run_id === null ? {} : { last_run_id: run_id }) } },
    )
  }, _id)

/** The id of the run, or why there is none. Throws as acceptAiRun. */
async function runOrSkip(
  { _id, tenant_id, input_json, canary_key, overlaps, last_run_id }: AiScheduleDocument,
  due_at: Date,
): Promise<string | NonNullable<Skipped>> {
  if (Date.now() - due_at.getTime() > latestMs) return late
  if (!overlaps && last_run_id !== null && (await AiRun.exists({ _id: last_run_id, tenant_id, open: true })))
    return stillOpen
  const asked = { input: JSON.parse(input_json) as unknown, canary_key, trigger: 'schedule' as const }
  return (await acceptAiRun({ tenant_id, id: null }, _id, asked))._id
}

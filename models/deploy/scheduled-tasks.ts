import { Cron } from 'croner'
import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { documentOptions, idField, named } from '../resources.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { taskOwnerKind, type TaskOwner, type TaskOwnerKind } from './task-owners.ts'

// Commands that run in an application or a service at the times of a cron expression. A change is a change of the record: the clock
// of the workers (worker/task-clock.ts) looks for those that are due.

export interface ScheduledTaskDocument {
  _id: string
  tenant_id: string
  deploy_server_id: string
  /** Its owner of any kind. The name is from when only applications had tasks. */
  app_id: string
  owner_kind: TaskOwnerKind
  /** The container of a service in which it runs. */
  container?: string
  /** Unique in the owner. */
  name: string
  /** A cron expression of five fields. */
  frequency: string
  /** An IANA time zone. */
  timezone: string
  /** For `/bin/sh -c` in a replica. */
  command: string
  timeout_sec: number
  /** Whether a run begins while the one before has not ended. */
  overlaps: boolean
  enabled: boolean
  /** When it runs next. Null: never, also if it is not enabled. */
  next_at: Date | null
  created_at: Date
  updated_at: Date
}

const schema = new Schema<ScheduledTaskDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    deploy_server_id: { type: String, required: true },
    app_id: { type: String, required: true },
    owner_kind: { type: String, required: true },
    container: String,
    name: { type: String, required: true },
    frequency: { type: String, required: true },
    timezone: { type: String, required: true },
    command: { type: String, required: true },
    timeout_sec: { type: Number, required: true },
    overlaps: { type: Boolean, required: true },
    enabled: { type: Boolean, required: true },
    next_at: { type: Date, default: null },
  },
  { ...documentOptions, collection: 'scheduled_tasks' },
)
tenantScoped(schema)
schema.index({ app_id: 1, name: 1 }, { unique: true })
schema.index({ next_at: 1 })
export const ScheduledTask = mongoose.model<ScheduledTaskDocument>('ScheduledTask', schema)

export const tasksAtMost = 50

type Timing = Pick<ScheduledTaskDocument, 'frequency' | 'timezone'>

/** Why a cron expression or time zone is none; null if both are right. */
export function faultOfTiming({ frequency, timezone }: Timing): string | null {
  try {
    new Cron(frequency, { timezone, mode: '5-part' }).nextRun()
    return null
  } catch (error) {
    return (error as Error).message.replace(/^CronPattern: /, '')
  }
}

/** The first time after `after`. Null: none. */
export const nextTime = ({ frequency, timezone }: Timing, after: Date): Date | null =>
  new Cron(frequency, { timezone, mode: '5-part' }).nextRun(after)

export type TaskFields = Pick<
  ScheduledTaskDocument,
  'name' | 'frequency' | 'timezone' | 'command' | 'timeout_sec' | 'overlaps' | 'enabled'
>
export type TaskChanges = { [Field in keyof TaskFields]?: TaskFields[Field] | undefined }

const timed = (fields: Timing & { enabled: boolean }): Date | null =>
  fields.enabled ? nextTime(fields, new Date()) : null

/** Throws NotFound, NameTaken and `too_many_tasks`. */
export const createTask = (
  kind: TaskOwnerKind,
  { _id: app_id, tenant_id, deploy_server_id }: TaskOwner,
  fields: TaskFields & { container?: string },
): Promise<ScheduledTaskDocument> =>
  named('scheduled task', fields.name, () =>
    transaction(async () => {
      const { model, alive } = taskOwnerKind(kind)
      const owner = { _id: app_id, tenant_id, ...alive }
      // Touched, so that a deletion that is accepted meanwhile comes first or sees the task.
      const there = await model.updateOne(owner, { $set: { updated_at: new Date() } })
      if (there.matchedCount === 0) throw new NotFound(kind)
      if ((await ScheduledTask.countDocuments({ app_id, tenant_id })) >= tasksAtMost)
        throw new Problem(
          409,
          'too_many_tasks',
          'Too many scheduled tasks',
          `The ${kind} has ${tasksAtMost} scheduled tasks, and may have no more`,
        )
      const of = { tenant_id, deploy_server_id, app_id, owner_kind: kind }
      return (
        await new ScheduledTask({ ...fields, _id: newId(), ...of, next_at: timed(fields) }).save()
      ).toObject()
    }, app_id),
  )

/** Throws NotFound and NameTaken. The next time is computed anew. */
export const changeTask = (
  task: ScheduledTaskDocument,
  changes: TaskChanges,
): Promise<ScheduledTaskDocument> =>
  named('scheduled task', changes.name ?? '', async () => {
    const { _id, tenant_id } = task
    const given = Object.entries(changes).filter(([, value]) => value !== undefined)
    const set = Object.fromEntries(given) as Partial<TaskFields>
    const changed = await ScheduledTask.findOneAndUpdate(
      { _id, tenant_id },
      { $set: { ...set, next_at: timed({ ...task, ...set }) } },
      { returnDocument: 'after' },
    ).lean()
    if (!changed) throw new NotFound('scheduled task')
    return changed
  })

/** The task of this owner. Throws NotFound. */
export async function taskOf(
  { _id: app_id, tenant_id }: TaskOwner,
  id: string,
): Promise<ScheduledTaskDocument> {
  const task = await ScheduledTask.findOne({ _id: id, app_id, tenant_id }).lean()
  if (!task) throw new NotFound('scheduled task')
  return task
}

/** The tasks of all tenants that are due, those that wait longest first. */
export const dueTasks = (limit: number): Promise<ScheduledTaskDocument[]> =>
  ScheduledTask.find({ next_at: { $lte: new Date() } })
    .setOptions(everyTenant)
    .sort({ next_at: 1 })
    .limit(limit)
    .lean()

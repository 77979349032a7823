import mongoose from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { NotFound, OperationInProgress } from '../../lib/problem.ts'
import { type By, create } from '../acceptance.ts'
import { transaction } from '../database.ts'
import { type Accepted, Operation } from '../operations.ts'
import { defineResource, type ResourceDocument, resourceSchema } from '../resources.ts'
import { type StateOf, states } from '../states.ts'
import { nextTime, ScheduledTask, type ScheduledTaskDocument } from './scheduled-tasks.ts'
import { taskOwnerKind, type TaskOwnerKind } from './task-owners.ts'

// The runs of scheduled tasks: each is an operation. A run is never repeated by itself: nobody knows what the command
// has done before its host was killed.

export const taskRunStates = states({
  creating: {},
  succeeded: {},
  failed: {},
  cancelled: {},
  // The run before had not ended.
  skipped: {},
  // The command may still run.
  error: {},
})

/** One run of a scheduled task. */
export interface TaskRunDocument extends ResourceDocument<StateOf<typeof taskRunStates>> {
  deploy_server_id: string
  /** Its owner of any kind. */
  app_id: string
  owner_kind: TaskOwnerKind
  /** The container of a service in which it runs. */
  container?: string
  task_id: string
  command: string
  timeout_sec: number
  /** The time of the schedule. Null: somebody asked for the run. */
  scheduled_at: Date | null
  started_at: Date | null
  ended_at: Date | null
  /** The worker on which it ran. */
  worker: string | null
  exit_code: number | null
  /** The end of what the command wrote. */
  output: string
}

const date = { type: Date, default: null }
const schema = resourceSchema<TaskRunDocument>(
  {
    deploy_server_id: { type: String, required: true },
    app_id: { type: String, required: true },
    owner_kind: { type: String, required: true },
    container: String,
    task_id: { type: String, required: true },
    command: { type: String, required: true },
    timeout_sec: { type: Number, required: true },
    scheduled_at: date,
    started_at: date,
    ended_at: date,
    worker: { type: String, default: null },
    exit_code: { type: Number, default: null },
    output: { type: String, default: '' },
  },
  taskRunStates,
  'task_runs',
  { within: 'task_id' },
)
schema.index({ task_id: 1, created_at: -1 })
schema.index({ app_id: 1 })
export const TaskRun = mongoose.model<TaskRunDocument>('TaskRun', schema)
export const taskRunResource = defineResource('task_run', TaskRun, taskRunStates, { title: 'task run' })

/** How many runs of a task are kept. */
const keptRuns = 100
/** A run that is later than this, because the platform was down, is left out. */
const latestMs = 10 * 60_000

const nameOf = (at: Date): string => at.toISOString().replaceAll(/[-:.]/g, '').toLowerCase()

/** Several may be asked for in one millisecond. */
const nameOfNow = (): string => `${nameOf(new Date())}-${newId().slice(-6)}`

/**
 * Accepts a run of the task. Throws NotFound (the task is deleted), and OperationInProgress while another run of a task
 * without `overlaps` is open.
 */
export const acceptRun = (
  by: By,
  task: ScheduledTaskDocument,
  scheduled_at: Date | null = null,
): Promise<Accepted<TaskRunDocument>> =>
  create(by, taskRunResource, {
    fields: {
      ...newRun(task, scheduled_at),
      name: scheduled_at ? nameOf(scheduled_at) : nameOfNow(),
      tags: {},
    },
    async reserve({ _id }) {
      // Touched, so that of two runs at once the second one sees the first.
      const its = { _id: task._id, tenant_id: by.tenant_id }
      const there = await ScheduledTask.updateOne(its, { $set: { updated_at: new Date() } })
      if (there.matchedCount === 0) throw new NotFound('scheduled task')
      const open = await openRun(task, _id)
      if (open && !task.overlaps) throw new OperationInProgress(open.operation_id ?? '')
      await forgetOldRuns(task)
    },
  })

/** A run of the task that has not ended, other than `but`. */
const openRun = ({ _id: task_id, tenant_id }: ScheduledTaskDocument, but: string | null = null) =>
  TaskRun.findOne({ task_id, tenant_id, status: 'creating', _id: { $ne: but } }, { operation_id: 1 }).lean()

const newRun = (
  { _id, deploy_server_id, app_id, owner_kind, container, command, timeout_sec }: ScheduledTaskDocument,
  scheduled_at: Date | null,
) => ({
  deploy_server_id,
  app_id,
  owner_kind,
  ...(container ? { container } : {}),
  task_id: _id,
  command,
  timeout_sec,
  scheduled_at,
  started_at: null,
  ended_at: null,
  worker: null,
  exit_code: null,
  output: '',
})

/** Begins the run of a task that is due, and sets its next time, together. Nothing happens if another worker has done so. */
export const beginDue = ({ _id, tenant_id, next_at: due }: ScheduledTaskDocument): Promise<void> =>
  transaction(async () => {
    const task = await ScheduledTask.findOne({ _id, tenant_id, next_at: due }).lean()
    if (!task || !due) return
    const now = new Date()
    const set = { next_at: nextTime(task, now) }
    await ScheduledTask.updateOne({ _id, tenant_id, next_at: due }, { $set: set })
    const { model, running } = taskOwnerKind(task.owner_kind)
    const runs = await model.exists({ _id: task.app_id, tenant_id, ...running })
    if (!runs || now.getTime() - due.getTime() > latestMs) return
    if (task.overlaps || !(await openRun(task))) {
      await acceptRun({ tenant_id, id: null }, task, due)
      return
    }
    await forgetOldRuns(task)
    const skipped = { status: 'skipped', status_reason: 'The previous run had not ended', ended_at: now }
    await new TaskRun({ ...newRun(task, due), tenant_id, name: nameOf(due), ...skipped }).save()
  }, _id)

/** Makes room for another run: removes the oldest ones with their operations. */
async function forgetOldRuns({ _id: task_id, tenant_id }: ScheduledTaskDocument): Promise<void> {
  const old = await TaskRun.find({ task_id, tenant_id, operation_id: null }, { _id: 1 })
    .sort({ created_at: -1 })
    .skip(keptRuns - 1)
    .limit(10)
    .lean()
  if (old.length)
    await forgetRuns(
      tenant_id,
      old.map(({ _id }) => _id),
    )
}

async function forgetRuns(tenant_id: string, ids: string[]): Promise<void> {
  for (const _id of ids) {
    await Operation.deleteOne({ resource_id: _id, tenant_id })
    await TaskRun.deleteOne({ _id, tenant_id })
  }
}

/** Removes a task with its runs. Open ones go on, and are forgotten when they end. */
export const deleteTask = ({ _id: task_id, tenant_id }: ScheduledTaskDocument): Promise<void> =>
  transaction(async () => {
    const { deletedCount } = await ScheduledTask.deleteOne({ _id: task_id, tenant_id })
    if (!deletedCount) throw new NotFound('scheduled task')
    const ended = await TaskRun.find({ task_id, tenant_id, operation_id: null }, { _id: 1 }).lean()
    await forgetRuns(
      tenant_id,
      ended.map(({ _id }) => _id),
    )
  }, tenant_id)

taskRunResource.comesToRest = async ({ _id, tenant_id }) => {
  const run = await TaskRun.findOne({ _id, tenant_id }, { task_id: 1 }).lean()
  if (!run) return
  // Written, so that a deletion at the same moment sees that the run has ended.
  const its = { _id: run.task_id, tenant_id }
  const { matchedCount } = await ScheduledTask.updateOne(its, { $set: { updated_at: new Date() } })
  // Its operation stays for those who wait for it.
  if (matchedCount === 0) await TaskRun.deleteOne({ _id, tenant_id })
}

/** Removes the tasks of an owner, or of all of a deploy server, with their runs. */
export async function forgetTasks(
  tenant_id: string,
  of: { app_id: string } | { deploy_server_id: string },
): Promise<void> {
  await ScheduledTask.deleteMany({ ...of, tenant_id })
  for (const { _id } of await TaskRun.find({ ...of, tenant_id }, { _id: 1 }).lean())
    await transaction(() => forgetRuns(tenant_id, [_id]), tenant_id)
}

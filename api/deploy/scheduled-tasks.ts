import { z } from 'zod'
import { applicationOf } from '../../models/deploy/applications.ts'
import {
  changeTask,
  createTask,
  ScheduledTask,
  type ScheduledTaskDocument,
  taskOf,
} from '../../models/deploy/scheduled-tasks.ts'
import {
  acceptRun,
  deleteTask,
  TaskRun,
  type TaskRunDocument,
  taskRunStates,
} from '../../models/deploy/task-runs.ts'
import type { TaskOwner, TaskOwnerKind } from '../../models/deploy/task-owners.ts'
import { byOf } from '../accept.ts'
import { Id, Name, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { type Caller, operation } from '../operation.ts'
import { path as serverPath } from './deployments.ts'
import { needTiming, timingFields } from './timing.ts'

const fields = {
  name: Name,
  ...timingFields,
  command: z
    .string()
    .min(1)
    .max(4096)
    .describe('The command for `/bin/sh -c`, in a replica of the application or a container of the service'),
  timeout_sec: z.int().min(1).max(86_400).describe('Seconds after which the command is ended'),
  overlaps: z.boolean().describe('Begin a run even if the previous one has not ended'),
  enabled: z.boolean(),
}

/** The HTTP operations on the scheduled tasks of one kind of owner. */
export function scheduledTasksOf(owner: {
  kind: TaskOwnerKind
  /** `applications` */
  plural: string
  /** In sentences: `an application`. */
  words: string
  /** The owner's name in the path, and its field in views. */
  param: string
  field: string
  /** Begins the ids of the views in the API's description. */
  view: string
  find: (caller: Caller, deployServerId: string, id: string) => Promise<TaskOwner>
  /** Whether a task names the container in which it runs. Throws InvalidInput for one that is none. */
  needContainer?: (owner: TaskOwner, container: string) => void
}) {
  const { kind, words, param, field, needContainer } = owner
  const contained = needContainer !== undefined
  const path = `${serverPath}/${owner.plural}/{${param}}/scheduled-tasks`
  const byOwner = z.strictObject({ id: Id, [param]: Id })
  const byTask = z.strictObject({ ...byOwner.shape, task: Id })
  const ownerOf = (caller: Caller, params: Record<string, string>): Promise<TaskOwner> =>
    owner.find(caller, params['id'] ?? '', params[param] ?? '')

  const TaskView = z
    .strictObject({
      id: Id,
      tenant_id: Id,
      uuid: Id.describe('The same as `id`'),
      deploy_server_id: Id,
      [field]: Id,
      ...(contained ? { container: z.string() } : {}),
      name: z.string(),
      frequency: z.string(),
      timezone: z.string(),
      command: z.string(),
      timeout_sec: z.int(),
      overlaps: z.boolean(),
      enabled: z.boolean(),
      next_at: Timestamp.nullable().describe('When it runs next; null: never'),
      created_at: Timestamp,
      updated_at: Timestamp,
    })
    .meta({ id: `${owner.view}Task` })

  const toTaskView = (task: ScheduledTaskDocument) => ({
    id: task._id,
    tenant_id: task.tenant_id,
    uuid: task._id,
    deploy_server_id: task.deploy_server_id,
    [field]: task.app_id,
    ...(contained ? { container: task.container ?? '' } : {}),
    name: task.name,
    frequency: task.frequency,
    timezone: task.timezone,
    command: task.command,
    timeout_sec: task.timeout_sec,
    overlaps: task.overlaps,
    enabled: task.enabled,
    next_at: timeOrNull(task.next_at),
    created_at: time(task.created_at),
    updated_at: time(task.updated_at),
  })

  const RunView = z
    .strictObject({
      id: Id,
      tenant_id: Id,
      [field]: Id,
      ...(contained ? { container: z.string() } : {}),
      task_id: Id,
      status: z
        .enum(taskRunStates.all)
        .describe('`creating`: in progress. `skipped`: the previous run had not ended'),
      status_reason: z.string().nullable(),
      operation_id: Id.nullable(),
      command: z.string(),
      scheduled_at: Timestamp.nullable().describe('The scheduled time; null: a request started the run'),
      started_at: Timestamp.nullable(),
      ended_at: Timestamp.nullable(),
      worker: z.string().nullable().describe('The worker on which it ran'),
      exit_code: z.int().nullable(),
      output: z.string().describe('The last 32 KiB that the command wrote'),
      created_at: Timestamp,
      updated_at: Timestamp,
    })
    .meta({ id: `${owner.view}TaskRun` })

  const toRunView = (run: TaskRunDocument) => ({
    id: run._id,
    tenant_id: run.tenant_id,
    [field]: run.app_id,
    ...(contained ? { container: run.container ?? '' } : {}),
    task_id: run.task_id,
    status: run.status,
    status_reason: run.status_reason,
    operation_id: run.operation_id,
    command: run.command,
    scheduled_at: timeOrNull(run.scheduled_at),
    started_at: timeOrNull(run.started_at),
    ended_at: timeOrNull(run.ended_at),
    worker: run.worker,
    exit_code: run.exit_code,
    output: run.output,
    created_at: time(run.created_at),
    updated_at: time(run.updated_at),
  })

  return [
    list({
      path,
      permission: 'deploy_servers:read',
      summary: `List the scheduled tasks of ${words}`,
      params: byOwner,
      model: ScheduledTask,
      view: TaskView,
      toView: toTaskView,
      stored: { uuid: '_id' },
      scope: async (caller, params) => {
        const { _id, tenant_id } = await ownerOf(caller, params)
        return { tenant_id, app_id: _id }
      },
    }),

    operation({
      method: 'POST',
      path,
      permission: 'deploy_servers:manage',
      summary: `Add a scheduled task to ${words}`,
      params: byOwner,
      body: z.strictObject({
        ...fields,
        ...(contained ? { container: z.string().max(40).describe('The container in which it runs') } : {}),
        timezone: fields.timezone.default('UTC'),
        timeout_sec: fields.timeout_sec.default(3600),
        overlaps: fields.overlaps.default(false),
        enabled: fields.enabled.default(true),
      }),
      responses: { 201: TaskView },
      handle: async ({ caller, params, body }) => {
        const found = await ownerOf(caller, params)
        needTiming(body)
        const { container } = body as { container?: string }
        if (container !== undefined) needContainer?.(found, container)
        const task = await createTask(kind, found, body as typeof body & { container?: string })
        const location = `/api/v1/deploy-servers/${found.deploy_server_id}/${owner.plural}/${found._id}/scheduled-tasks/${task._id}`
        return { location, body: toTaskView(task) }
      },
    }),

    operation({
      method: 'GET',
      path: `${path}/{task}`,
      permission: 'deploy_servers:read',
      summary: 'Get a scheduled task',
      params: byTask,
      responses: { 200: TaskView },
      handle: async ({ caller, params }) =>
        toTaskView(await taskOf(await ownerOf(caller, params), params.task)),
    }),

    operation({
      method: 'PATCH',
      path: `${path}/{task}`,
      permission: 'deploy_servers:manage',
      summary: 'Change a scheduled task',
      params: byTask,
      body: z.strictObject(fields).partial(),
      responses: { 200: TaskView },
      handle: async ({ caller, params, body }) => {
        const before = await taskOf(await ownerOf(caller, params), params.task)
        const { frequency = before.frequency, timezone = before.timezone } = body
        needTiming({ frequency, timezone })
        return toTaskView(await changeTask(before, body))
      },
    }),

    operation({
      method: 'DELETE',
      path: `${path}/{task}`,
      permission: 'deploy_servers:manage',
      summary: 'Delete a scheduled task; a run in progress continues',
      params: byTask,
      responses: { 204: null },
      handle: async ({ caller, params }) =>
        deleteTask(await taskOf(await ownerOf(caller, params), params.task)),
    }),

    operation({
      method: 'POST',
      path: `${path}/{task}/run`,
      permission: 'deploy_servers:manage',
      summary: 'Run a scheduled task now',
      params: byTask,
      responses: { 202: RunView },
      handle: async ({ caller, params }) => {
        const by = byOf(caller)
        const its = await taskOf(await ownerOf(caller, params), params.task)
        const { document, operation: accepted } = await acceptRun(by, its)
        return { operation_id: accepted._id, body: toRunView(document) }
      },
    }),

    list({
      path: `${path}/{task}/runs`,
      permission: 'deploy_servers:read',
      summary: 'List the last 100 runs of a scheduled task, with their output',
      params: byTask,
      model: TaskRun,
      view: RunView,
      toView: toRunView,
      scope: async (caller, params) => {
        const { _id, tenant_id } = await taskOf(await ownerOf(caller, params), params.task)
        return { tenant_id, task_id: _id }
      },
    }),
  ]
}

export const scheduledTasks = scheduledTasksOf({
  kind: 'application',
  plural: 'applications',
  words: 'an application',
  param: 'app',
  field: 'app_id',
  view: 'Scheduled',
  find: applicationOf,
})

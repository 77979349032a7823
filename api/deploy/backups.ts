import { z } from 'zod'
import {
  Backup,
  type BackupDocument,
  backupOf,
  changeBackup,
  createBackup,
  deleteBackup,
} from '../../models/deploy/backups.ts'
import { databaseOf } from '../../models/deploy/databases.ts'
import { Id, Name, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { path as serverPath } from './deployments.ts'
import { needTiming, timingFields } from './timing.ts'

const fields = {
  name: Name,
  ...timingFields,
  enabled: z.boolean(),
  keep_count: z.int().min(1).max(1000).describe('How many backups of this schedule are kept'),
  keep_days: z
    .int()
    .min(1)
    .max(3650)
    .nullable()
    .describe('Days after which backups are removed, except the last one; null: only `keep_count` decides'),
  target_id: Id.nullable().describe('The tenant’s bucket for new backups; null: the platform’s storage'),
}

const BackupView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    uuid: Id.describe('The same as `id`'),
    deploy_server_id: Id,
    database_id: Id,
    ...fields,
    name: z.string(),
    next_at: Timestamp.nullable().describe('When it runs next; null: never'),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'BackupSchedule' })

const toView = (backup: BackupDocument): z.output<typeof BackupView> => ({
  id: backup._id,
  tenant_id: backup.tenant_id,
  uuid: backup._id,
  deploy_server_id: backup.deploy_server_id,
  database_id: backup.database_id,
  name: backup.name,
  frequency: backup.frequency,
  timezone: backup.timezone,
  enabled: backup.enabled,
  keep_count: backup.keep_count,
  keep_days: backup.keep_days,
  target_id: backup.target_id,
  next_at: timeOrNull(backup.next_at),
  created_at: time(backup.created_at),
  updated_at: time(backup.updated_at),
})

const byDatabase = z.strictObject({ id: Id, db: Id })
const byBackup = z.strictObject({ ...byDatabase.shape, backup: Id })
const path = `${serverPath}/databases/{db}/backups`

/** The HTTP operations on the backup schedules of a database. */
export const backups = [
  list({
    path,
    permission: 'deploy_servers:read',
    summary: 'List the backup schedules of a database',
    params: byDatabase,
    model: Backup,
    view: BackupView,
    toView,
    stored: { uuid: '_id' },
    scope: async (caller, { id, db }) => {
      const { _id, tenant_id } = await databaseOf(caller, id, db)
      return { tenant_id, database_id: _id }
    },
  }),

  operation({
    method: 'POST',
    path,
    permission: 'deploy_servers:manage',
    summary: 'Schedule backups of a database by a cron expression',
    params: byDatabase,
    body: z.strictObject({
      ...fields,
      name: Name.default('scheduled'),
      timezone: timingFields.timezone.default('UTC'),
      enabled: fields.enabled.default(true),
      keep_count: fields.keep_count.default(7),
      keep_days: fields.keep_days.default(null),
      target_id: fields.target_id.default(null),
    }),
    responses: { 201: BackupView },
    handle: async ({ caller, params: { id, db }, body }) => {
      const database = await databaseOf(caller, id, db)
      needTiming(body)
      const backup = await createBackup(database, body)
      const location = `/api/v1/deploy-servers/${id}/databases/${db}/backups/${backup._id}`
      return { location, body: toView(backup) }
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{backup}`,
    permission: 'deploy_servers:read',
    summary: 'Get a backup schedule',
    params: byBackup,
    responses: { 200: BackupView },
    handle: async ({ caller, params: { id, db, backup } }) =>
      toView(await backupOf(await databaseOf(caller, id, db), backup)),
  }),

  operation({
    method: 'PATCH',
    path: `${path}/{backup}`,
    permission: 'deploy_servers:manage',
    summary: 'Change a backup schedule',
    params: byBackup,
    body: z.strictObject(fields).partial(),
    responses: { 200: BackupView },
    handle: async ({ caller, params: { id, db, backup }, body }) => {
      const before = await backupOf(await databaseOf(caller, id, db), backup)
      const { frequency = before.frequency, timezone = before.timezone } = body
      needTiming({ frequency, timezone })
      return toView(await changeBackup(before, body))
    },
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{backup}`,
    permission: 'deploy_servers:manage',
    summary: 'Delete a backup schedule; its backups stay',
    params: byBackup,
    responses: { 204: null },
    handle: async ({ caller, params: { id, db, backup } }) =>
      deleteBackup(await backupOf(await databaseOf(caller, id, db), backup)),
  }),
]

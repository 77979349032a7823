import { z } from 'zod'
import { begin } from '../../models/acceptance.ts'
import { acceptBackupDeletion, acceptBackupExecution } from '../../models/deploy/backup-acceptance.ts'
import {
  BackupExecution,
  type BackupExecutionDocument,
  backupExecutionOf,
  backupExecutionResource,
  verifiedBy,
} from '../../models/deploy/backup-executions.ts'
import { backupOf } from '../../models/deploy/backups.ts'
import { databaseOf } from '../../models/deploy/databases.ts'
import { databaseTypes } from '../../models/deploy/engines/index.ts'
import { accepting } from '../accept.ts'
import { byId, commonView, Id, resourceView, Timestamp, time, timeOrNull } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { inDeployServer } from './children.ts'
import { path as serverPath } from './deployments.ts'

const ExecutionView = z
  .strictObject({
    ...resourceView,
    uuid: Id.describe('The same as `id`'),
    deploy_server_id: Id,
    database_id: Id,
    database_name: z.string(),
    backup_id: Id.nullable().describe('Its schedule; null: a request started it'),
    target_id: Id.nullable().describe('The tenant’s bucket that it is in; null: the platform’s storage'),
    location: z.string().nullable().describe('`s3://bucket/prefix/` of its objects in that bucket'),
    method: z
      .enum(['dump', 'base'])
      .describe('`base`: a copy of the engine’s files, from which the log leads to later times'),
    type: z.enum(databaseTypes),
    version: z.string().describe('The version of the engine that wrote it'),
    reason: z.string().nullable().describe('The same as `status_reason`'),
    scheduled_at: Timestamp.nullable(),
    started_at: Timestamp.nullable(),
    ended_at: Timestamp.nullable(),
    size_bytes: z.int().nullable().describe('The stored size, compressed and encrypted'),
    dump_bytes: z.int().nullable().describe('The size of what the engine’s tool wrote'),
    sha256: z
      .string()
      .nullable()
      .describe('SHA-256 of the dump as it is stored, compressed but not yet encrypted'),
    verified: z
      .strictObject({
        by: z
          .enum(verifiedBy)
          .describe(
            '`restore`: it was restored and compared. `reading`: it was only read in full, because there was no room to restore it',
          ),
        at: Timestamp,
        tables: z.int().describe('The number of tables, collections or key spaces'),
        rows: z.int().describe('The number of rows, documents or keys'),
      })
      .nullable()
      .describe('How and when it was last read back'),
  })
  .meta({ id: 'BackupExecution' })

const toView = (execution: BackupExecutionDocument): z.output<typeof ExecutionView> => {
  const { copy, verified } = execution
  return {
    ...commonView(execution),
    uuid: execution._id,
    deploy_server_id: execution.deploy_server_id,
    database_id: execution.database_id,
    database_name: execution.database_name,
    backup_id: execution.backup_id,
    target_id: execution.target_id,
    location: execution.location,
    method: execution.archive_id === null ? 'dump' : 'base',
    type: execution.type,
    version: execution.version,
    reason: execution.status_reason,
    scheduled_at: timeOrNull(execution.scheduled_at),
    started_at: timeOrNull(execution.started_at),
    ended_at: timeOrNull(execution.ended_at),
    size_bytes: copy?.stored_bytes ?? null,
    dump_bytes: copy?.dump_bytes ?? null,
    sha256: copy?.stored_sha256 ?? copy?.sha256 ?? null,
    verified: verified && {
      by: verified.by,
      at: time(verified.at),
      tables: verified.tables,
      rows: verified.rows,
    },
  }
}

const byExecution = z.strictObject({ id: Id, execution: Id })
const byDatabase = z.strictObject({ id: Id, db: Id })
const path = `${serverPath}/backup-executions`
const stored = { uuid: '_id', reason: 'status_reason' } as const
const listed = { permission: 'deploy_servers:read', model: BackupExecution, view: ExecutionView } as const

/** The HTTP operations on backups that were made, also those of deleted databases. */
export const backupExecutions = [
  list({
    ...listed,
    path: `${serverPath}/databases/{db}/backups/{backup}/executions`,
    summary: 'List the backups that a backup schedule made',
    params: z.strictObject({ ...byDatabase.shape, backup: Id }),
    toView,
    stored,
    scope: async (caller, { id, db, backup }) => {
      const { _id, tenant_id } = await backupOf(await databaseOf(caller, id, db), backup)
      return { tenant_id, backup_id: _id }
    },
  }),

  list({
    ...listed,
    path,
    summary: 'List the backups of a deploy server’s databases, including those of deleted databases',
    params: byId,
    toView,
    stored,
    scope: inDeployServer,
  }),

  operation({
    method: 'POST',
    path: `${serverPath}/databases/{db}/backup-executions`,
    permission: 'deploy_servers:manage',
    summary: 'Back up a database now; the operation succeeds once the backup has been read back',
    params: byDatabase,
    body: z
      .strictObject({
        target_id: Id.nullable()
          .default(null)
          .describe('The tenant’s bucket for the backup; null: the platform’s storage'),
      })
      .prefault({}),
    responses: { 202: ExecutionView },
    handle: async ({ caller, params: { id, db }, body: { target_id } }) => {
      const database = await databaseOf(caller, id, db)
      return accepting(caller, toView, (by) => acceptBackupExecution(by, database, { target_id }))
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/{execution}`,
    permission: 'deploy_servers:read',
    summary: 'Get a backup',
    params: byExecution,
    responses: { 200: ExecutionView },
    handle: async ({ caller, params: { id, execution } }) =>
      toView(await backupExecutionOf(caller, id, execution)),
  }),

  operation({
    method: 'POST',
    path: `${path}/{execution}/verify`,
    permission: 'deploy_servers:manage',
    summary: 'Read a backup back again, and record whether it is damaged',
    params: byExecution,
    responses: { 202: ExecutionView },
    handle: async ({ caller, params: { id, execution } }) => {
      await backupExecutionOf(caller, id, execution)
      return accepting(caller, toView, (by) => begin(by, backupExecutionResource, execution, 'verify'))
    },
  }),

  operation({
    method: 'DELETE',
    path: `${path}/{execution}`,
    permission: 'deploy_servers:manage',
    summary: 'Delete a backup; a backup in progress is cancelled',
    params: byExecution,
    responses: { 202: ExecutionView },
    handle: async ({ caller, params: { id, execution } }) => {
      await backupExecutionOf(caller, id, execution)
      return accepting(caller, toView, (by) => acceptBackupDeletion(by, execution))
    },
  }),
]

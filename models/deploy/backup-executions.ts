import { randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import type { Count, DumpReport } from '../../lib/backup-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { defineResource, mine, type ResourceDocument, resourceSchema } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type StateOf, states } from '../states.ts'
import { everyTenant } from '../tenant-scope.ts'
import { deployServerResource } from './deploy-servers.ts'
import type { Configuration, DatabaseCredentials } from './engines/engine.ts'
import { type DatabaseType, databaseTypes } from './engines/index.ts'

export const backupExecutionStates = states(
  {
    creating: {},
    succeeded: { verify: 'verifying', delete: 'deleting' },
    // It cannot be read back as it was written.
    damaged: { verify: 'verifying', delete: 'deleting' },
    failed: { delete: 'deleting' },
    cancelled: { delete: 'deleting' },
    // The one before had not ended, or the database did not run.
    skipped: { delete: 'deleting' },
    error: { delete: 'deleting' },
  },
  { supersede: ['delete'], final: ['delete'] },
)

export const verifiedBy = ['restore', 'reading'] as const

/** One copy of a database's data. It outlives the database. */
export interface BackupExecutionDocument extends ResourceDocument<StateOf<typeof backupExecutionStates>> {
  deploy_server_id: string
  database_id: string
  /** Of the database, for people who look for it when it is gone. */
  database_name: string
  /** The schedule. Null: somebody asked for it. */
  backup_id: string | null
  /** The tenant's bucket that it is in. Null: the platform's storage. */
  target_id: string | null
  /** Of a copy of the engine's files: the archive whose segments follow on it. Null: it is a dump. */
  archive_id: string | null
  /** `s3://bucket/prefix/`: its place in the tenant's bucket. */
  location: string | null
  type: DatabaseType
  version: string
  image: string
  /** What a scratch engine needs to take it. */
  cpu_cores: number
  memory_mib: number
  /** The settings of the database. Absent: an older copy. */
  configuration?: Configuration
  /** Sealed: the key of its parts. */
  key_sealed: string
  /** Sealed: DatabaseCredentials. Some engines have their passwords in the copy, so what is restored from it has these. */
  credentials_sealed: string
  /** The time of the schedule. Null: somebody asked for it. */
  scheduled_at: Date | null
  started_at: Date | null
  ended_at: Date | null
  /** The last attempt of a host to write it. Only its parts count. */
  attempt: number
  /** How many parts its attempts have kept. */
  kept_parts: number
  /** Null until it is whole. */
  copy: BackupCopy | null
  /** Null: it was never read back. */
  verified: { by: (typeof verifiedBy)[number]; at: Date; tables: number; rows: number } | null
  /** When the platform reads it back again. */
  look_at: Date | null
  /** The room that its scratch engine takes. */
  scratch: { node: string; memory_mib: number } | null
}

/** What is known of a whole copy. */
export interface BackupCopy {
  parts: number
  stored_bytes: number
  dump_bytes: number
  /** Of what is stored, before it was sealed. Older copies have that of the dump before it was compressed. */
  stored_sha256?: string
  sha256?: string
  counts: Count[]
  /** Of a copy of files: the first segment that follows, and the first moment to which it can be brought. */
  base: DumpReport['base']
}

const { Mixed } = Schema.Types
const date = { type: Date, default: null }
const schema = resourceSchema<BackupExecutionDocument>(
  {
    deploy_server_id: { type: String, required: true },
    database_id: { type: String, required: true },
    database_name: { type: String, required: true },
    backup_id: { type: String, default: null },
    target_id: { type: String, default: null },
    archive_id: { type: String, default: null },
    location: { type: String, default: null },
    type: { type: String, required: true, enum: databaseTypes },
    version: { type: String, required: true },
    image: { type: String, required: true },
    cpu_cores: { type: Number, required: true },
    memory_mib: { type: Number, required: true },
    configuration: Mixed,
    key_sealed: { type: String, required: true },
    credentials_sealed: { type: String, required: true },
    scheduled_at: date,
    started_at: date,
    ended_at: date,
    attempt: { type: Number, default: 0 },
    kept_parts: { type: Number, default: 0 },
    copy: { type: Mixed, default: null },
    verified: { type: Mixed, default: null },
    look_at: date,
    scratch: { type: Mixed, default: null },
  },
  backupExecutionStates,
  'backup_executions',
  { within: 'database_id' },
)
schema.index({ database_id: 1, created_at: -1 })
schema.index({ deploy_server_id: 1, created_at: -1 })
schema.index({ backup_id: 1, created_at: -1 })
schema.index({ archive_id: 1 }, { partialFilterExpression: { archive_id: { $type: 'string' } } })
schema.index({ target_id: 1 }, { partialFilterExpression: { target_id: { $type: 'string' } } })
schema.index({ look_at: 1 }, { partialFilterExpression: { status: 'succeeded' } })
export const BackupExecution = mongoose.model<BackupExecutionDocument>('BackupExecution', schema)
export const backupExecutionResource = defineResource(
  'backup_execution',
  BackupExecution,
  backupExecutionStates,
)

const keyContext = (id: string): string => `backup_executions.key:${id}`
sealedField(BackupExecution, 'key_sealed', ({ _id }) => keyContext(_id))

const credentialsContext = (id: string): string => `backup_executions.credentials:${id}`
sealedField(BackupExecution, 'credentials_sealed', ({ _id }) => credentialsContext(_id))

/** The credentials of the database that a copy is of, sealed. */
export const sealCopyCredentials = (id: string, credentials: DatabaseCredentials): Promise<string> =>
  sealSecret(credentials, credentialsContext(id))
export const copyCredentialsOf = ({
  _id,
  credentials_sealed,
}: BackupExecutionDocument): Promise<DatabaseCredentials> =>
  unsealSecret<DatabaseCredentials>(credentials_sealed, credentialsContext(_id))

/** A new key for the parts of a copy, sealed. */
export const makeCopyKey = (id: string): Promise<string> =>
  sealSecret(randomBytes(32).toString('base64'), keyContext(id))
export const copyKeyOf = ({ _id, key_sealed }: BackupExecutionDocument): Promise<string> =>
  unsealSecret<string>(key_sealed, keyContext(_id))

/** The execution of this deploy server of the caller's tenant. Throws NotFound. */
export async function backupExecutionOf(
  caller: { tenant_id: string },
  deployServerId: string,
  id: string,
): Promise<BackupExecutionDocument> {
  await mine(deployServerResource, caller, deployServerId)
  const execution = await mine(backupExecutionResource, caller, id)
  if (execution.deploy_server_id !== deployServerId) throw new NotFound('backup execution')
  return execution
}

/** The execution without a check of its tenant, for activities. Null if it is gone. */
export const findBackupExecution = (id: string): Promise<BackupExecutionDocument | null> =>
  BackupExecution.findById(id).setOptions(everyTenant).lean()

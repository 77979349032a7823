import { newId } from '../../lib/ids.ts'
import {
  BackupExecution,
  type BackupExecutionDocument,
  makeCopyKey,
  sealCopyCredentials,
} from '../../models/deploy/backup-executions.ts'
import { Backup, type BackupDocument } from '../../models/deploy/backups.ts'
import { makeTls } from '../../models/deploy/database-tls.ts'
import { Database, type DatabaseDocument, makeCredentials } from '../../models/deploy/databases.ts'
import { addDataStorage, Storage } from '../../models/deploy/storages.ts'

const day = 86_400_000
const name = () => `row-${newId().slice(-12)}`

const inserted = new Set<string>()

export async function removeDatabaseRecords(): Promise<void> {
  for (const tenant_id of inserted) {
    await Database.deleteMany({ tenant_id })
    await Backup.deleteMany({ tenant_id })
    await BackupExecution.deleteMany({ tenant_id })
    await Storage.deleteMany({ tenant_id })
  }
}

/** Inserts records of databases that are on no engine, for tests of rules. `removeDatabaseRecords` removes them. */
export function databaseRecordsOf(tenant_id: string) {
  inserted.add(tenant_id)
  const deploy_server_id = newId()
  const records = {
    async database(over: Partial<DatabaseDocument> = {}): Promise<DatabaseDocument> {
      const _id = newId()
      await addDataStorage({ _id, tenant_id, deploy_server_id }, '/data')
      const size = { cpu_cores: 0.5, memory_mib: 32 }
      const its = {
        _id,
        tenant_id,
        deploy_server_id,
        name: name(),
        credentials_sealed: await makeCredentials(_id),
      }
      const engine = { type: 'redis', version: '8.0.3', image: 'redis:8.0.3', status: 'running' } as const
      return (
        await new Database({ ...its, ...size, ...engine, ...(await makeTls(_id)), ...over }).save()
      ).toObject()
    },

    /** A schedule, which is due at no time. */
    async schedule(database: DatabaseDocument, over: Partial<BackupDocument> = {}): Promise<BackupDocument> {
      const its = { _id: newId(), tenant_id, deploy_server_id, database_id: database._id, name: name() }
      const timing = {
        frequency: '0 3 1 1 *',
        timezone: 'UTC',
        enabled: true,
        tidy_at: new Date(Date.now() + day),
      }
      return (await new Backup({ ...its, ...timing, keep_count: 7, ...over }).save()).toObject()
    },

    /** A backup of so many days ago, of which nothing is stored. */
    async execution(
      {
        _id: database_id,
        name: database_name,
        type,
        version,
        image,
        cpu_cores,
        memory_mib,
      }: DatabaseDocument,
      { days = 0, ...over }: Partial<BackupExecutionDocument> & { days?: number } = {},
    ): Promise<BackupExecutionDocument> {
      const _id = newId()
      const at = new Date(Date.now() - days * day)
      const credentials = { user: 'u', password: 'p', database: 'd', root_password: 'r' }
      const its = { _id, tenant_id, deploy_server_id, database_id, database_name, name: name() }
      const sealed = {
        key_sealed: await makeCopyKey(_id),
        credentials_sealed: await sealCopyCredentials(_id, credentials),
      }
      const made = { status: 'succeeded', created_at: at, started_at: at, ended_at: at } as const
      const engine = { type, version, image, cpu_cores, memory_mib }
      const document = new BackupExecution({ ...its, ...sealed, ...made, ...engine, ...over })
      return (await document.save({ timestamps: false })).toObject()
    },
  }
  return records
}

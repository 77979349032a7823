import { needQuota } from '../identity/tenants.ts'
import { Archive } from './archives.ts'
import { BackupExecution } from './backup-executions.ts'
import type { DatabaseDocument } from './databases.ts'

const size = '$copy.stored_bytes'

/** What a tenant's backups take of the platform's storage, logs included. */
export async function backupBytesOf(tenant_id: string): Promise<number> {
  const [kept] = await BackupExecution.aggregate<{ bytes: number }>([
    { $match: { tenant_id, target_id: null, copy: { $ne: null } } },
    { $group: { _id: null, bytes: { $sum: size } } },
  ])
  const [logs] = await Archive.aggregate<{ bytes: number }>([
    { $match: { tenant_id, target_id: null } },
    { $group: { _id: null, bytes: { $sum: '$stored_bytes' } } },
  ])
  return (kept?.bytes ?? 0) + (logs?.bytes ?? 0)
}

/**
 * Throws QuotaExceeded if the platform's storage has no room for another backup of the database. It is taken to be as large
 * as the last one; what is small, such as a segment of its log, needs only that the limit is not reached. Buckets of the
 * tenant have no limit.
 */
export async function needBackupQuota(
  { _id: database_id, tenant_id }: Pick<DatabaseDocument, '_id' | 'tenant_id'>,
  { isSmall = false } = {},
): Promise<void> {
  const [last] = await BackupExecution.aggregate<{ bytes: number }>([
    { $match: { tenant_id, database_id, copy: { $ne: null } } },
    { $sort: { created_at: -1 } },
    { $limit: 1 },
    { $project: { bytes: size } },
  ])
  await needQuota(
    tenant_id,
    'max_backup_gib',
    gibOf(await backupBytesOf(tenant_id)),
    isSmall ? 0 : gibOf(last?.bytes ?? 0),
  )
}

/** With two decimals: somebody reads it. */
const gibOf = (bytes: number): number => Math.round((bytes / 1024 ** 3) * 100) / 100

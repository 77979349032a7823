import { QuotaExceeded } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { everyTenant } from '../tenant-scope.ts'
import { pause } from './archive-orders.ts'
import { Archive, type ArchiveDocument } from './archives.ts'
import { acceptBackupExecution, openBackup } from './backup-acceptance.ts'
import { Backup } from './backups.ts'
import { Database } from './databases.ts'
import { basesOf } from './point-in-time.ts'

// An archive is of use from its first base on, so the platform makes one if there is none.

/** A base that failed is made again after this time. */
const againMs = 600_000
/** While the database is not ready for one. */
const soonMs = 5_000
/** A host that told nothing for this time does not archive. */
const silentMs = 600_000

/** The archives of all tenants at which a look is due, those that wait longest first. */
export const archivesToLookAt = (limit: number): Promise<ArchiveDocument[]> =>
  Archive.find({ is_current: true, base_due_at: { $lte: new Date() } })
    .setOptions(everyTenant)
    .sort({ base_due_at: 1 })
    .limit(limit)
    .lean()

/** Has a base made if there is none, and sets the next look, together. Nothing happens if another worker has done so. */
export async function lookAtArchive(due: ArchiveDocument): Promise<void> {
  const { _id, tenant_id } = due
  try {
    await transaction(() => beginBase(due), _id)
  } catch (error) {
    if (!(error instanceof QuotaExceeded)) throw error
    await again(due, againMs)
    await pause({ _id, tenant_id }, `There is no base backup: ${error.message}`)
  }
}

const again = ({ _id, tenant_id, base_due_at }: ArchiveDocument, ms: number) =>
  Archive.updateOne(
    { _id, tenant_id, is_current: true, base_due_at },
    { $set: { base_due_at: new Date(Date.now() + ms) } },
  )

async function beginBase(due: ArchiveDocument): Promise<void> {
  const { tenant_id, database_id, target_id } = due
  const database = await Database.findOne({ _id: database_id, tenant_id }).lean()
  const hasBase = (await basesOf(due)).some(({ is_cut_off }) => !is_cut_off)
  const isReady = database?.status === 'running' && !(await openBackup(database))
  const { modifiedCount } = await again(due, hasBase || isReady ? againMs : soonMs)
  if (!modifiedCount || hasBase || !isReady) return
  // It is kept as the backups of the database are.
  const backup = await Backup.findOne({ database_id, tenant_id, enabled: true })
    .sort({ created_at: 1 })
    .lean()
  await acceptBackupExecution({ tenant_id, id: null }, database, { backup, target_id })
}

/** Tells of archives to which their hosts have added nothing, although their databases run. */
export async function pauseSilentArchives(limit: number): Promise<void> {
  const silent = await Archive.find({
    is_current: true,
    paused_reason: null,
    told_at: { $lt: new Date(Date.now() - silentMs) },
  })
    .setOptions(everyTenant)
    .limit(limit)
    .lean()
  for (const { _id, tenant_id, database_id, told_at } of silent) {
    if (await Database.exists({ _id: database_id, tenant_id, status: 'running' }))
      await pause({ _id, tenant_id }, `Its host has not reported since ${told_at.toISOString()}`)
    else await Archive.updateOne({ _id, tenant_id }, { $set: { told_at: new Date() } })
  }
}

import { NotFound, Problem } from '../../lib/problem.ts'
import { UnwantedBlob } from '../blobs.ts'
import { transaction } from '../database.ts'
import { Operation } from '../operations.ts'
import { ArchiveSegment } from './archive-segments.ts'
import { Archive } from './archives.ts'
import { BackupExecution } from './backup-executions.ts'
import { BackupPart } from './backup-parts.ts'
import { BackupTarget, type BackupTargetDocument } from './backup-targets.ts'
import { usesOf as usesOfBackups } from './backup-uses.ts'
import { Backup } from './backups.ts'

// A target is deleted when nothing needs it. Its objects are the tenant's: they stay if the tenant has the platform forget
// its backups.

type Of = Pick<BackupTargetDocument, '_id' | 'tenant_id'>

/** What would be lost with the target. */
async function usesOf({ _id: target_id, tenant_id }: Of) {
  const its = { target_id, tenant_id }
  return {
    schedules: await Backup.countDocuments(its),
    under_way: await BackupExecution.countDocuments({ ...its, operation_id: { $ne: null } }),
    restores: await countRestores(tenant_id, await takenFrom(its)),
    archives: await Archive.countDocuments({ ...its, is_current: true }),
    former_archives: await Archive.countDocuments({ ...its, is_current: false }),
    backups: await BackupExecution.countDocuments({ ...its, copy: { $ne: null } }),
    objects_to_remove: await UnwantedBlob.countDocuments({ target_id }),
  }
}

/** What can be restored from a target: its backups, and those elsewhere whose log is in it. */
async function takenFrom(its: { target_id: string; tenant_id: string }) {
  const archives = await Archive.find(its, { _id: 1 }).lean()
  const archive_id = { $in: archives.map(({ _id }) => _id) }
  return { $or: [{ target_id: its.target_id }, { archive_id }] }
}

/** How many databases take their data from these backups, or will when they start. */
async function countRestores(tenant_id: string, which: object): Promise<number> {
  const backups = await BackupExecution.find({ ...which, tenant_id }, { _id: 1 }).lean()
  const uses = await usesOfBackups(
    tenant_id,
    backups.map(({ _id }) => _id),
  )
  return new Set(uses.values()).size
}

/**
 * Deletes a target that nothing uses. `forgets`: first forgets its backups, whose objects stay in the bucket. Throws
 * NotFound, and `backup_target_in_use`.
 */
export async function deleteTarget(
  target: BackupTargetDocument,
  { forgets }: { forgets: boolean },
): Promise<void> {
  const { _id, tenant_id } = target
  if (forgets) {
    const { schedules, under_way, restores, archives } = await usesOf(target)
    if (schedules || under_way || restores || archives)
      throw inUse({ schedules, under_way, restores, archives })
    await forgetBackupsIn(target)
  }
  await transaction(async () => {
    const { deletedCount } = await BackupTarget.deleteOne({ _id, tenant_id })
    if (!deletedCount) throw new NotFound('backup target')
    const uses = await usesOf(target)
    if (Object.values(uses).some(Boolean)) throw inUse(uses)
  }, _id)
}

/** A backup that a restore takes meanwhile stays, with those that are not forgotten yet. */
async function forgetBackupsIn({ _id: target_id, tenant_id }: Of): Promise<void> {
  const whole = { target_id, tenant_id, operation_id: null, copy: { $ne: null } }
  for (const { _id } of await BackupExecution.find(whole, { _id: 1 }).lean())
    await transaction(async () => {
      const restores = await countRestores(tenant_id, { _id })
      if (restores) throw inUse({ restores })
      const { deletedCount } = await BackupExecution.deleteOne({ ...whole, _id })
      if (!deletedCount) return
      await BackupPart.deleteMany({ execution_id: _id, tenant_id })
      await Operation.deleteMany({ resource_id: _id, tenant_id })
    }, _id)
  for (const { _id } of await Archive.find({ target_id, tenant_id, is_current: false }, { _id: 1 }).lean())
    await transaction(async () => {
      const bases = { archive_id: _id, tenant_id }
      // Of this and a restore at once, the second sees the first.
      await BackupExecution.updateMany(bases, { $set: { updated_at: new Date() } })
      const restores = await countRestores(tenant_id, bases)
      if (restores) throw inUse({ restores })
      await ArchiveSegment.deleteMany({ archive_id: _id, tenant_id })
      await Archive.deleteOne({ _id, tenant_id })
    }, _id)
  await UnwantedBlob.deleteMany({ target_id })
}

function inUse(uses: Partial<Awaited<ReturnType<typeof usesOf>>>): Problem {
  const counts = Object.entries(uses).filter(([, count]) => count > 0)
  const listed = counts.map(([use, count]) => `${use.replaceAll('_', ' ')}: ${count}`).join(', ')
  return new Problem(409, 'backup_target_in_use', 'The backup target is in use', listed, {
    extensions: { uses: Object.fromEntries(counts) },
  })
}

import { NotFound, Problem } from '../../lib/problem.ts'
import { UnwantedBlob } from '../blobs.ts'
import { transaction } from '../database.ts'
import { Operation } from '../operations.ts'
import { ArchiveSegment } from './archive-segments.ts'
import { Archive } from './archives.ts'
import { BackupExecution } from './backup-executions.ts'
import { BackupPart } from './backup-parts.ts'
import { BackupTarget, type BackupTargetDocument } from './backup-targets.ts'
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
    archives: await Archive.countDocuments({ ...its, is_current: true }),
    former_archives: await Archive.countDocuments({ ...its, is_current: false }),
    backups: await BackupExecution.countDocuments({ ...its, copy: { $ne: null } }),
    objects_to_remove: await UnwantedBlob.countDocuments({ target_id }),
  }
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
    const { schedules, under_way, archives } = await usesOf(target)
    if (schedules || under_way || archives) throw inUse({ schedules, under_way, archives })
    await forgetBackupsIn(target)
  }
  await transaction(async () => {
    const { deletedCount } = await BackupTarget.deleteOne({ _id, tenant_id })
    if (!deletedCount) throw new NotFound('backup target')
    const uses = await usesOf(target)
    if (Object.values(uses).some(Boolean)) throw inUse(uses)
  }, _id)
}

async function forgetBackupsIn({ _id: target_id, tenant_id }: Of): Promise<void> {
  const whole = { target_id, tenant_id, operation_id: null, copy: { $ne: null } }
  for (const { _id } of await BackupExecution.find(whole, { _id: 1 }).lean())
    await transaction(async () => {
      const { deletedCount } = await BackupExecution.deleteOne({ ...whole, _id })
      if (!deletedCount) return
      await BackupPart.deleteMany({ execution_id: _id, tenant_id })
      await Operation.deleteMany({ resource_id: _id, tenant_id })
    }, _id)
  for (const { _id } of await Archive.find({ target_id, tenant_id, is_current: false }, { _id: 1 }).lean())
    await transaction(async () => {
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

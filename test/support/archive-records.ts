import { newId } from '../../lib/ids.ts'
import { ArchiveSegment } from '../../models/deploy/archive-segments.ts'
import { Archive, type ArchiveDocument, archivesOf, beginArchive } from '../../models/deploy/archives.ts'
import { BackupExecution, type BackupExecutionDocument } from '../../models/deploy/backup-executions.ts'
import type { DatabaseDocument } from '../../models/deploy/databases.ts'
import type { databaseRecordsOf } from './database-records.ts'

/** The name of a segment from 1 to 9. */
export const named = (number: number) => `00000001000000000000000${number}`
/** When a second of the log was: a segment has ten. */
export const at = (second: number) => new Date(Date.UTC(2026, 0, 1, 0, 0, second))

/**
 * A database whose ended archive has this many segments. Nothing is stored of them, so its test must remove them by
 * `removeArchives`.
 */
export async function archived(
  records: ReturnType<typeof databaseRecordsOf>,
  segments: number,
): Promise<{ database: DatabaseDocument; archive: ArchiveDocument }> {
  const over = { type: 'postgresql', version: '17.6', archiving: { target_id: null } } as const
  const database = await records.database(over)
  await beginArchive(database, null)
  const [archive] = await archivesOf(database)
  if (!archive) throw new Error('there is no archive')
  const { _id: archive_id, tenant_id } = archive
  for (let number = 1; number <= segments; number++) {
    const times = { ticked_at: at(number * 10), after: at((number - 1) * 10) }
    const stored = { blob: newId(), bytes: 0 }
    await new ArchiveSegment({ tenant_id, archive_id, name: named(number), ...times, ...stored }).save()
  }
  const last = at(segments * 10)
  // Ended, else the platform would make a new base; not untidy, else it would remove the archive before its first one.
  const end = {
    is_current: false,
    last_segment: segments ? named(segments) : null,
    latest: last,
    ticked_at: last,
  }
  await Archive.updateOne({ _id: archive_id, tenant_id }, { $set: end })
  return { database, archive }
}

/** A base that starts in this segment. */
export function baseAt(
  records: ReturnType<typeof databaseRecordsOf>,
  database: DatabaseDocument,
  { _id: archive_id }: ArchiveDocument,
  number: number,
): Promise<BackupExecutionDocument> {
  const base = { start: named(number), moment: at(number * 10 - 5).toISOString(), archive_id }
  const copy = { parts: 0, stored_bytes: 0, dump_bytes: 0, counts: [], base }
  return records.execution(database, { archive_id, copy })
}

export async function removeArchives(tenant_id: string): Promise<void> {
  await BackupExecution.deleteMany({ tenant_id })
  await ArchiveSegment.deleteMany({ tenant_id })
  await Archive.deleteMany({ tenant_id })
}

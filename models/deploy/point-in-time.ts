import { InvalidInput } from '../../lib/problem.ts'
import { type By, mayReach } from '../acceptance.ts'
import { logEnd } from './archive-segments.ts'
import { type ArchiveDocument, archivesOf, beginArchive, currentArchive, endArchive } from './archives.ts'
import { BackupExecution, type BackupExecutionDocument } from './backup-executions.ts'
import type { DatabaseDocument } from './databases.ts'
import { engineOf } from './engines/index.ts'

// To which moments a database can be recovered.

/** What a caller asks for. */
export interface PointInTimeChange {
  enabled: boolean
  /** Default: as before, or the platform's storage. */
  target_id?: string | null | undefined
}

export interface MomentRange {
  earliest: Date
  latest: Date
}

export const pointInTimeStates = ['off', 'starting', 'archiving', 'paused'] as const

/** What is shown of it. */
export interface SeenPointInTime {
  status: (typeof pointInTimeStates)[number]
  reason: string | null
  /** Of the present archive, up to its end. */
  range: MomentRange | null
  /** Of all archives, the oldest first. */
  ranges: MomentRange[]
}

/**
 * Begins, ends or moves the archive of a database as its caller wants, in the caller's transaction. Returns what the
 * database's record has from then on. Throws InvalidInput.
 */
export async function changePointInTime(
  database: Pick<DatabaseDocument, '_id' | 'tenant_id' | 'deploy_server_id' | 'type'>,
  before: DatabaseDocument['archiving'],
  { enabled, target_id = before?.target_id ?? null }: PointInTimeChange,
): Promise<DatabaseDocument['archiving']> {
  const { title, archive } = engineOf(database.type)
  if (enabled && !archive)
    throw new InvalidInput(422, [
      { pointer: '/point_in_time/enabled', message: `${title} cannot be recovered to a moment` },
    ])
  const current = await currentArchive(database)
  if (enabled && current && current.target_id === target_id) return { target_id }
  if (current) await endArchive(database)
  if (!enabled) return null
  await beginArchive(database, target_id)
  return { target_id }
}

/** A base backup, and to which moments the log after it leads. */
export interface Base extends BackupExecutionDocument {
  moment: Date
  /** Null: to none yet. */
  until: Date | null
  /** A segment after it is damaged, so that it cannot be brought to the archive's end. */
  is_cut_off: boolean
}

/** The usable bases of an archive, the oldest first. */
export async function basesOf(archive: ArchiveDocument): Promise<Base[]> {
  const { _id: archive_id, tenant_id } = archive
  const whole = { archive_id, tenant_id, status: { $in: ['succeeded' as const, 'verifying' as const] } }
  const bases: Base[] = []
  for (const execution of await BackupExecution.find(whole).lean()) {
    const base = execution.copy?.base
    if (!base) continue
    const { latest: until, is_cut_off } = await logEnd(archive, base.start)
    bases.push({ ...execution, moment: new Date(base.moment), until, is_cut_off })
  }
  return bases.toSorted((a, b) => a.moment.getTime() - b.moment.getTime())
}

/** The ranges of moments to which the bases of an archive lead, the oldest first: one, and one more for each damage. */
async function rangesOf(archive: ArchiveDocument): Promise<(MomentRange & { is_cut_off: boolean })[]> {
  const ranges: (MomentRange & { is_cut_off: boolean })[] = []
  for (const { moment, until, is_cut_off } of await basesOf(archive)) {
    if (!until || until < moment || ranges.at(-1)?.latest.getTime() === until.getTime()) continue
    ranges.push({ earliest: moment, latest: until, is_cut_off })
  }
  return ranges
}

/** Has another volume of the database begin another archive, in the caller's transaction. */
export async function beginAnew(
  database: Pick<DatabaseDocument, '_id' | 'tenant_id' | 'deploy_server_id' | 'archiving'>,
): Promise<void> {
  await endArchive(database)
  if (database.archiving) await beginArchive(database, database.archiving.target_id)
}

/** Null: the engine of the database cannot be recovered to any moment. */
export async function seenPointInTime(database: DatabaseDocument): Promise<SeenPointInTime | null> {
  if (!engineOf(database.type).archive) return null
  const archives = await archivesOf(database)
  const all = await Promise.all(archives.map(async (archive) => ({ archive, its: await rangesOf(archive) })))
  const current = all.find(({ archive }) => archive.is_current)
  const ranges = all.flatMap(({ its }) => its)
  if (!current) return { status: 'off', reason: null, range: null, ranges }
  const { archive, its } = current
  const range = its.find(({ is_cut_off }) => !is_cut_off) ?? null
  const { paused_reason, opened_at } = archive
  if (paused_reason !== null && opened_at) return { status: 'paused', reason: paused_reason, range, ranges }
  if (range) return { status: 'archiving', reason: null, range, ranges }
  return { status: 'starting', reason: paused_reason ?? (await whyNoBase(archive)), range, ranges }
}

async function whyNoBase({ _id: archive_id, tenant_id }: ArchiveDocument): Promise<string | null> {
  const [last] = await BackupExecution.find({ archive_id, tenant_id })
    .sort({ created_at: -1 })
    .limit(1)
    .lean()
  return last?.status_reason ?? null
}

/**
 * The base from which a database, which may be deleted, is recovered to a moment: the newest before it. Throws InvalidInput
 * that names the moments which there are; the same for a database that is unknown to the caller as for one without any.
 */
export async function baseFor(by: By, databaseId: string, at: Date): Promise<BackupExecutionDocument> {
  const all = await archivesOf({ _id: databaseId, tenant_id: by.tenant_id })
  const archives = all.filter(({ deploy_server_id }) => mayReach(by, deploy_server_id))
  const bases = (await Promise.all(archives.map(basesOf))).flat()
  const newest = bases
    .toSorted((a, b) => b.moment.getTime() - a.moment.getTime())
    .find(({ moment, until }) => moment <= at && until && at <= until)
  if (newest) return newest
  const ranges = (await Promise.all(archives.map(rangesOf))).flat()
  const named = ranges.map(({ earliest, latest }) => `${earliest.toISOString()} to ${latest.toISOString()}`)
  const message = named.length ? `must be within ${named.join(' or ')}` : 'there is no moment yet'
  throw new InvalidInput(422, [{ pointer: '/at', message }])
}

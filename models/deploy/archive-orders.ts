import { createHash } from 'node:crypto'
import {
  type ArchiveReport,
  type DatabaseArchivesOnHost,
  type SegmentPlace,
  segmentsBetween,
} from '../../lib/archive-protocol.ts'
import type { CopyOrder } from '../../lib/backup-protocol.ts'
import { NotFound, Problem, QuotaExceeded } from '../../lib/problem.ts'
import type { Observer } from '../compute/observer.ts'
import { transaction } from '../database.ts'
import { everyTenant } from '../tenant-scope.ts'
import { keepSegment, logEnd, segmentAfter, SegmentGap } from './archive-segments.ts'
import { Archive, type ArchiveDocument, archiveKeyOf, beginArchive, endArchive } from './archives.ts'
import { BackupExecution, type BackupExecutionDocument } from './backup-executions.ts'
import { needBackupQuota } from './backup-quota.ts'
import { databasesOn } from './databases-on-hosts.ts'
import { Database } from './databases.ts'
import type { DeployServerDocument } from './deploy-servers.ts'
import { engineOf } from './engines/index.ts'
import { tellEvent } from './events.ts'
import { basesOf } from './point-in-time.ts'

// What hosts ask and tell about the archives of databases' logs.

type Server = Pick<DeployServerDocument, '_id' | 'tenant_id'>

/** The running databases on a host that can have an archive, with those that they have. */
async function archivedOn(hostId: string) {
  const found = (await databasesOn(hostId)).filter(({ database }) => engineOf(database.type).archive)
  if (found.length === 0) return []
  const ids = found.map(({ database }) => database._id)
  const archives = await Archive.find({ database_id: { $in: ids }, is_current: true })
    .setOptions(everyTenant)
    .lean()
  const byDatabase = new Map(archives.map((archive) => [archive.database_id, archive]))
  return found.map((one) => ({ ...one, archive: byDatabase.get(one.database._id) ?? null }))
}

const versionOf = (archived: Awaited<ReturnType<typeof archivedOn>>): string =>
  createHash('sha256')
    .update(
      JSON.stringify(
        archived.map(({ database, machine_id, archive }) => [
          database._id,
          database.applied?.starts,
          machine_id,
          archive?._id,
          archive?.opened_at,
        ]),
      ),
    )
    .digest('hex')

export const archiveObserver: Observer = { wanted: async (hostId) => versionOf(await archivedOn(hostId)) }

export async function databaseArchivesOn(hostId: string): Promise<DatabaseArchivesOnHost> {
  const archived = await archivedOn(hostId)
  const databases = archived.map(async ({ database, machine_id, archive }) => {
    const scripts = engineOf(database.type).archive
    if (!scripts) return []
    const { open, look, read, forget, close } = scripts
    const { _id: id, deploy_server_id } = database
    return [
      {
        id,
        deploy_server_id,
        machine_id,
        archive: archive && {
          id: archive._id,
          key: await archiveKeyOf(archive),
          is_open: archive.opened_at !== null,
        },
        scripts: { open, look, read, forget, close },
      },
    ]
  })
  return { version: versionOf(archived), databases: (await Promise.all(databases)).flat() }
}

async function current({ _id: deploy_server_id, tenant_id }: Server, _id: string): Promise<ArchiveDocument> {
  const archive = await Archive.findOne({ _id, tenant_id, deploy_server_id, is_current: true }).lean()
  if (!archive) throw new NotFound('archive')
  return archive
}

/** Takes what a host has found in the volume of a database. Throws NotFound if the archive has ended. */
export const takeArchiveReport = (server: Server, id: string, report: ArchiveReport): Promise<void> =>
  transaction(async () => {
    const archive = await current(server, id)
    const { _id, tenant_id, database_id, target_id, opened_at } = archive
    const now = new Date()
    const told = { told_at: now }
    if (report.state === 'opened') {
      const opened = { ...told, opened_at: now, base_due_at: now, paused_reason: null }
      if (!opened_at) await Archive.updateOne({ _id, tenant_id }, { $set: opened })
      return
    }
    if (report.state === 'idle') {
      const latest = new Date(report.at)
      const newer = archive.latest && archive.latest < latest ? { latest } : {}
      const goesOn = (await basesOf(archive)).length > 0 ? { paused_reason: null } : {}
      await Archive.updateOne({ _id, tenant_id }, { $set: { ...told, ...newer, ...goesOn } })
      return
    }
    const database = { _id: database_id, tenant_id, deploy_server_id: server._id }
    await endArchive(database)
    const reason =
      report.state === 'gap'
        ? `The log since ${archive.latest?.toISOString() ?? 'the beginning'} could not be archived in time, and was dropped`
        : null
    await beginArchive(database, target_id, reason)
    if (reason !== null) await tellPaused(database, reason)
  }, id)

/** Keeps a segment. If the tenant's limit or bucket refuses it, that is noted, told and thrown. */
export async function takeSegment(
  server: Server,
  id: string,
  place: SegmentPlace,
  bytes: Buffer,
): Promise<void> {
  const archive = await current(server, id)
  try {
    const { database_id, tenant_id, target_id } = archive
    if (!target_id) await needBackupQuota({ _id: database_id, tenant_id }, { isSmall: true })
    await keepSegment(archive, place, bytes)
  } catch (error) {
    if (error instanceof SegmentGap)
      await takeArchiveReport(server, id, { state: 'gap', segment: place.name })
    else if (error instanceof QuotaExceeded)
      await pause(archive, `The tenant’s limit is reached: ${error.message}`)
    else if (error instanceof Problem && !(error instanceof NotFound)) await pause(archive, error.message)
    throw error
  }
}

/** Notes why no segments are added, and tells it once. */
export const pause = (
  { _id, tenant_id }: Pick<ArchiveDocument, '_id' | 'tenant_id'>,
  paused_reason: string,
) =>
  transaction(async () => {
    const going = { _id, tenant_id, is_current: true, paused_reason: null }
    const before = await Archive.findOneAndUpdate(going, { $set: { paused_reason } }).lean()
    if (before) await tellPaused({ ...before, _id: before.database_id }, paused_reason)
  }, _id)

const tellPaused = async (
  { _id, tenant_id, deploy_server_id }: Pick<ArchiveDocument, '_id' | 'tenant_id' | 'deploy_server_id'>,
  reason: string,
): Promise<void> => {
  const database = await Database.findOne({ _id, tenant_id }).lean()
  await tellEvent({
    tenant_id,
    deploy_server_id,
    kind: 'archive.paused',
    message: `The log of ${database?.name ?? 'a database'} is not archived: ${reason}`,
    data: { database: { id: _id, name: database?.name ?? null }, reason },
  })
}

/**
 * Notes that segments are damaged in storage, and tells it once. Bases before one lead to the moments before it, those after
 * the last to the end.
 */
export const noteDamagedSegments = (archiveId: string, names: string[]): Promise<void> =>
  transaction(async () => {
    const archive = await Archive.findById(archiveId).setOptions(everyTenant).lean()
    const { last_segment = null } = archive ?? {}
    const known = new Set(archive?.damaged_segments)
    // A look that an earlier release began may name one that was never stored.
    const isStored = (name: string): boolean => last_segment !== null && name <= last_segment
    const found = names.filter((name) => isStored(name) && !known.has(name))
    if (!archive || found.length === 0) return
    const { _id, tenant_id, deploy_server_id, database_id, is_current } = archive
    const due = is_current ? { base_due_at: new Date() } : {}
    const noted = { $addToSet: { damaged_segments: { $each: found } } }
    await Archive.updateOne({ _id, tenant_id }, { ...noted, $set: due })
    const database = await Database.findOne({ _id: database_id, tenant_id }).lean()
    await tellEvent({
      tenant_id,
      deploy_server_id,
      kind: 'archive.damaged',
      message: `The archived log of ${database?.name ?? 'a database'} is damaged: the database cannot be recovered to moments between the damage and its next base backup`,
      data: {
        database: { id: database_id, name: database?.name ?? null },
        segment: found[0],
        segments: found.length,
      },
    })
  }, archiveId)

/**
 * The segments that follow on a base. `at`: those with which it comes to that moment; without, those up to the next base
 * that are stored. Throws NotFound if the moment is not there.
 */
export async function logAfter(
  { archive_id, tenant_id, copy }: BackupExecutionDocument,
  at: Date | null,
): Promise<CopyOrder['log']> {
  const base = copy?.base
  const archive = archive_id && base ? await Archive.findOne({ _id: archive_id, tenant_id }).lean() : null
  if (!archive || !base) return null
  const log = { archive_id: archive._id, key: await archiveKeyOf(archive), segments: [], target: null }
  if (at === null) {
    const { last_segment } = archive
    if (last_segment === null) return log
    // The segment in which the next base starts is stored later, or never if the archive ends before.
    const next = await nextStart(archive, base.start)
    const last = next !== null && next < last_segment ? next : last_segment
    return { ...log, segments: segmentsBetween(base.start, last) }
  }
  const { latest, ticked_at } = await logEnd(archive, base.start)
  if (!latest || latest < at) throw new NotFound('moment')
  // Nothing was committed since.
  const target = ticked_at && at < ticked_at ? at : ticked_at
  if (!target || target < new Date(base.moment)) return log
  const last = await segmentAfter(archive, target)
  if (last === null) throw new NotFound('moment')
  return { ...log, segments: segmentsBetween(base.start, last), target: target.toISOString() }
}

async function nextStart({ _id, tenant_id }: ArchiveDocument, start: string): Promise<string | null> {
  const later = { archive_id: _id, tenant_id, 'copy.base.start': { $gt: start } }
  const [next] = await BackupExecution.find(later).sort({ 'copy.base.start': 1 }).limit(1).lean()
  return next?.copy?.base?.start ?? null
}

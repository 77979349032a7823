import { newId } from '../../lib/ids.ts'
import { Problem, QuotaExceeded, StateConflict } from '../../lib/problem.ts'
import { accepts, begin, type By, create } from '../acceptance.ts'
import { transaction } from '../database.ts'
import { type Accepted, Operation } from '../operations.ts'
import { mine } from '../resources.ts'
import { everyTenant } from '../tenant-scope.ts'
import {
  BackupExecution,
  type BackupExecutionDocument,
  backupExecutionResource,
  makeCopyKey,
  sealCopyCredentials,
} from './backup-executions.ts'
import { forgetArchives } from './archive-segments.ts'
import { currentArchive } from './archives.ts'
import { dropParts } from './backup-parts.ts'
import { needBackupQuota } from './backup-quota.ts'
import { Backup, type BackupDocument, takeTidying, tidySoon } from './backups.ts'
import { holdTarget } from './backup-targets.ts'
import { needUnused, usesOf } from './backup-uses.ts'
import { credentialsOf, Database, type DatabaseDocument, databaseResource } from './databases.ts'
import { tellEvent } from './events.ts'
import { nextTime } from './scheduled-tasks.ts'

// The acceptance rules for backups: by hand, by their schedules, and what is removed with time.

/** A backup that is later than this, because the platform was down, is missed. */
const latestMs = 60 * 60_000
/** So many times that were missed at once are counted. */
const missedAtMost = 1_000
/** How many executions of a schedule that did not succeed are kept. */
const keptFailures = 50
/**
 * A base that the platform made by itself stays at least until more backups than this are newer: a user who looks for the
 * right moment recovers several times, and the platform makes a base each time.
 */
const newerAtLeast = 10
/** How many backups are removed in one transaction. */
const removedAtOnce = 100
/** When a look at a backup is tried again that could not be made. */
const lookAgainMs = 86_400_000

const nameOf = (at: Date, id: string): string =>
  `${at.toISOString().slice(0, 19).replaceAll(/[-:]/g, '').toLowerCase()}-${id.slice(-6)}`

/** Whether a backup of the database is being made. */
/** Throws `backup_in_progress`. */
export async function needNoBackup(database: DatabaseDocument): Promise<void> {
  if (!(await openBackup(database))) return
  const detail = 'The database is being backed up: wait for it, or cancel its operation'
  throw new Problem(409, 'backup_in_progress', 'A backup is being made', detail)
}

export const openBackup = ({ _id, tenant_id }: DatabaseDocument) =>
  BackupExecution.exists({ database_id: _id, tenant_id, status: 'creating' })

/**
 * Accepts a backup, into a bucket of the tenant if one is given. Throws StateConflict unless the database runs,
 * InvalidInput, `backup_in_progress`, and QuotaExceeded for the platform's storage.
 */
export const acceptBackupExecution = (
  by: By,
  database: DatabaseDocument,
  {
    backup = null,
    at = null,
    target_id = null,
  }: { backup?: BackupDocument | null; at?: Date | null; target_id?: string | null } = {},
): Promise<Accepted<BackupExecutionDocument>> =>
  transaction(async () => {
    // An upgrade has its engine run for the backup.
    if (database.status !== 'running' && !by.parent)
      throw new StateConflict('back up the database', database.status)
    // Touched, so that of two at once, in two processes, the second sees the first.
    const { _id, tenant_id } = database
    await Database.updateOne({ _id, tenant_id }, { $set: { updated_at: new Date() } })
    await needNoBackup(database)
    // An upgrade that was begun is not stopped by it.
    if (!target_id && !by.parent) await needBackupQuota(database)
    const id = newId()
    return create(by, backupExecutionResource, {
      id,
      fields: {
        ...(await newExecution(database, id, { backup, at, target_id })),
        // An upgrade needs a dump, which newer engines take.
        ...(by.parent ? { archive_id: null } : {}),
        tags: {},
      },
    })
  }, database._id)

async function newExecution(
  database: DatabaseDocument,
  id: string,
  {
    backup,
    at: scheduled_at,
    target_id,
  }: { backup: BackupDocument | null; at: Date | null; target_id: string | null },
) {
  const target = target_id ? await holdTarget(database.tenant_id, target_id) : null
  const { _id, name, deploy_server_id, type, applied } = database
  const { version, image, cpu_cores, memory_mib, configuration } = applied ?? database
  const archive = await currentArchive(database)
  return {
    name: nameOf(scheduled_at ?? new Date(), id),
    deploy_server_id,
    database_id: _id,
    database_name: name,
    backup_id: backup?._id ?? null,
    target_id: target?._id ?? null,
    archive_id: archive?.opened_at ? archive._id : null,
    location: target && `s3://${target.bucket}/${target.prefix}${_id}/${id}/`,
    type,
    version,
    image,
    cpu_cores,
    memory_mib,
    configuration,
    key_sealed: await makeCopyKey(id),
    credentials_sealed: await sealCopyCredentials(id, await credentialsOf(database)),
    scheduled_at,
    started_at: null,
    ended_at: null,
    attempt: 0,
    kept_parts: 0,
    copy: null,
    verified: null,
    look_at: null,
    scratch: null,
  }
}

/**
 * Begins the backup of a schedule that is due, and sets its next time, together. Of several times that have passed, the last
 * is made, and the others are told as one. Nothing happens if another worker has done so.
 */
export const beginDueBackup = ({ _id, tenant_id, next_at: due }: BackupDocument): Promise<void> =>
  transaction(async () => {
    const backup = await Backup.findOne({ _id, tenant_id, next_at: due }).lean()
    if (!backup || !due) return
    const now = new Date()
    await Backup.updateOne({ _id, tenant_id, next_at: due }, { $set: { next_at: nextTime(backup, now) } })
    const database = await Database.findOne({ _id: backup.database_id, tenant_id }).lean()
    if (!database || database.status === 'deleting') return
    const { last, before } = timesUntil(now, backup, due)
    const isLate = now.getTime() - last.getTime() > latestMs
    const missed = isLate ? before + 1 : before
    if (missed > 0) await miss(database, backup, due, whyLate(missed))
    if (isLate) return
    const { target_id } = backup
    const why = await whyNot(database, target_id)
    if (why !== null) return miss(database, backup, last, why)
    await acceptBackupExecution({ tenant_id, id: null }, database, { backup, at: last, target_id })
  }, _id)

/** The last time of a schedule that has passed, and how many did before it: of very many, those that were counted. */
function timesUntil(now: Date, backup: BackupDocument, due: Date): { last: Date; before: number } {
  let [last, before] = [due, 0]
  for (;;) {
    const counts = before < missedAtMost
    const since = counts ? last : new Date(Math.max(last.getTime(), now.getTime() - latestMs))
    const next = nextTime(backup, since)
    if (!next || next > now) return { last, before }
    last = next
    before++
  }
}

function whyLate(missed: number): string {
  const others = missed - 1
  const counted = others < missedAtMost ? others : `${missedAtMost} or more`
  return `The platform was down at the scheduled time${others === 0 ? '' : ` and at ${counted} after it`}`
}

/** Records a backup that is not made, and tells it. */
async function miss(
  database: DatabaseDocument,
  backup: BackupDocument,
  at: Date,
  why: string,
): Promise<void> {
  const { tenant_id, target_id } = backup
  const id = newId()
  const skipped = { status: 'skipped', status_reason: why, ended_at: new Date() }
  await new BackupExecution({
    ...(await newExecution(database, id, { backup, at, target_id })),
    _id: id,
    tenant_id,
    ...skipped,
  }).save()
  await tidySoon(backup)
  await tellEvent({
    tenant_id,
    deploy_server_id: database.deploy_server_id,
    kind: 'backup.missed',
    message: `${database.name} was not backed up: ${why}`,
    data: { database: shown(database), scheduled_at: at.toISOString(), reason: why },
  })
}

async function whyNot(database: DatabaseDocument, target_id: string | null): Promise<string | null> {
  if (database.status !== 'running') return `The database was ${database.status}`
  if (await openBackup(database)) return 'The previous backup had not ended'
  return target_id ? null : whyNoRoom(database)
}

/** Why the platform's storage has no room for another backup. */
const whyNoRoom = (database: Pick<DatabaseDocument, '_id' | 'tenant_id'>): Promise<string | null> =>
  needBackupQuota(database).then(
    () => null,
    (error: unknown) => {
      if (error instanceof QuotaExceeded) return `The tenant’s limit is reached: ${error.message}`
      throw error
    },
  )

const shown = ({ _id, name, type }: DatabaseDocument) => ({ id: _id, name, type })

/**
 * Has backups removed that their schedule no longer keeps. The last one that succeeded is always kept. Nothing happens if
 * another worker does so.
 */
export const removeOldBackups = (due: BackupDocument): Promise<void> =>
  transaction(async () => {
    if (!(await takeTidying(due))) return
    const leaving = await oldBackups(due)
    for (const { _id } of leaving.slice(0, removedAtOnce))
      await begin({ tenant_id: due.tenant_id, id: null }, backupExecutionResource, _id, 'delete')
    if (leaving.length > removedAtOnce) await tidySoon(due)
  }, due._id)

type Kept = Pick<BackupExecutionDocument, '_id' | 'created_at' | 'scheduled_at' | 'target_id'>

/**
 * Base backups that the platform made by itself do not count: a database that is recovered several times has one for each.
 * They leave with those that the schedule made before them, when very many are newer, or when they take the room of the next.
 */
async function oldBackups(backup: BackupDocument): Promise<Pick<BackupExecutionDocument, '_id'>[]> {
  const { _id: backup_id, tenant_id, keep_count, keep_days } = backup
  const of = (succeeded: boolean) => ({
    backup_id,
    tenant_id,
    operation_id: null,
    status: succeeded ? ('succeeded' as const) : { $ne: 'succeeded' as const },
  })
  const good: Kept[] = await BackupExecution.find(of(true), { created_at: 1, scheduled_at: 1, target_id: 1 })
    .sort({ created_at: -1 })
    .lean()
  const counted = good.filter(({ scheduled_at }) => scheduled_at !== null)
  const lastCounted = counted[keep_count - 1]
  const enough = lastCounted ? good.indexOf(lastCounted) : good.length
  const oldest = keep_days === null ? 0 : Date.now() - keep_days * 86_400_000
  const ownEnough = Math.max(keep_count, newerAtLeast)
  const isOld = ({ created_at, scheduled_at }: Kept, index: number): boolean =>
    index > enough || (scheduled_at === null && index > ownEnough) || created_at.getTime() < oldest
  const old = good.filter((one, index) => index > 0 && one !== counted[0] && isOld(one, index))
  const leaving = old.length > 0 ? old : await inTheWay(backup, good)
  const bad = await BackupExecution.find(of(false), { _id: 1 })
    .sort({ created_at: -1 })
    .skip(keptFailures)
    .lean()
  const all = [...leaving, ...bad]
  const uses = await usesOf(
    tenant_id,
    all.map(({ _id }) => _id),
  )
  return all.filter(({ _id }) => !uses.has(_id))
}

/**
 * The oldest base that the platform made by itself, if the platform's storage has no room for the next backup: without it no
 * newer one would ever come, and it would never leave. One at a time, since a removal may make enough room.
 */
async function inTheWay({ _id, tenant_id, database_id }: BackupDocument, good: Kept[]): Promise<Kept[]> {
  const own = good
    .slice(1)
    .findLast(({ scheduled_at, target_id }) => scheduled_at === null && target_id === null)
  if (!own || (await BackupExecution.exists({ backup_id: _id, tenant_id, status: 'deleting' }))) return []
  return (await whyNoRoom({ _id: database_id, tenant_id })) === null ? [] : [own]
}

/** Throws as `begin`, and `backup_in_use` if a tenant deletes a backup from which a database is restored. */
export const acceptBackupDeletion = (by: By, id: string): Promise<Accepted<BackupExecutionDocument>> =>
  begin(by, backupExecutionResource, id, 'delete', by.over_http ? { reserve: needUnused } : {})

/** The whole backups of all tenants at which a look is due, the oldest first. */
export const unverifiedBackups = (limit: number): Promise<BackupExecutionDocument[]> =>
  BackupExecution.find({ status: 'succeeded', look_at: { $lte: new Date() }, operation_id: null })
    .setOptions(everyTenant)
    .sort({ look_at: 1 })
    .limit(limit)
    .lean()

/** Begins the look that is due. Nothing happens if another worker has done so. */
export const beginVerification = ({ _id, tenant_id, look_at }: BackupExecutionDocument): Promise<void> =>
  transaction(async () => {
    const next = { look_at: new Date(Date.now() + lookAgainMs) }
    const { modifiedCount } = await BackupExecution.updateOne({ _id, tenant_id, look_at }, { $set: next })
    if (modifiedCount) await begin({ tenant_id, id: null }, backupExecutionResource, _id, 'verify')
  }, _id)

accepts(backupExecutionResource, {
  create: async (by, { database_id }: { database_id: string }) =>
    acceptBackupExecution(by, await mine(databaseResource, by, database_id)),
  verbs: { delete: acceptBackupDeletion },
})

/** What the end of a backup tells. It runs in the transaction that ends its operation. */
backupExecutionResource.comesToRest = async ({ _id, tenant_id, ended }) => {
  const execution = await BackupExecution.findOne({ _id, tenant_id }).lean()
  if (!execution) return
  const { deploy_server_id, database_name, database_id, status, status_reason, name } = execution
  const about = { tenant_id, deploy_server_id }
  const data = { database: { id: database_id, name: database_name }, execution: { id: _id, name } }
  if (status === 'damaged')
    await tellEvent({
      ...about,
      kind: 'backup.damaged',
      message: `The backup ${name} of ${database_name} is damaged: ${status_reason ?? ''}`,
      data,
    })
  const hasEnded = execution.ended_at !== null
  if (status === 'succeeded' && ended === 'failed')
    await tellEvent({
      ...about,
      kind: 'backup.not_verified',
      message: `The backup ${name} of ${database_name} could not be read back: ${status_reason ?? ''}`,
      data,
    })
  await BackupExecution.updateOne(
    { _id, tenant_id },
    { $set: { ended_at: execution.ended_at ?? new Date() } },
  )
  if (hasEnded) return
  if (execution.backup_id && status !== 'succeeded') await tidySoon({ _id: execution.backup_id, tenant_id })
  if (status === 'succeeded')
    await tellEvent({ ...about, kind: 'backup.succeeded', message: `${database_name} was backed up`, data })
  if (status === 'failed' || status === 'error')
    await tellEvent({
      ...about,
      kind: 'backup.failed',
      message: `${database_name} was not backed up: ${status_reason ?? ''}`,
      data,
    })
}

/** Removes all backups and archives of a deploy server. Call when none of their operations is open. */
export async function forgetBackupExecutions(tenant_id: string, deploy_server_id: string): Promise<void> {
  for (const { _id } of await BackupExecution.find({ tenant_id, deploy_server_id }, { _id: 1 }).lean()) {
    while (await dropParts({ _id, tenant_id })) {}
    await transaction(async () => {
      await Operation.deleteMany({ resource_id: _id, tenant_id })
      await BackupExecution.deleteOne({ _id, tenant_id })
    }, tenant_id)
  }
  await forgetArchives(tenant_id, deploy_server_id)
}

import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { documentOptions, idField, named } from '../resources.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { holdTarget } from './backup-targets.ts'
import { Database, type DatabaseDocument } from './databases.ts'
import { nextTime } from './scheduled-tasks.ts'

// When a database is backed up by itself, and how long these backups are kept. A change is a change of the record: the clock
// of the workers (worker/task-clock.ts) looks for those that are due.

export interface BackupDocument {
  _id: string
  tenant_id: string
  deploy_server_id: string
  database_id: string
  /** Unique in the database. */
  name: string
  /** A cron expression of five fields. */
  frequency: string
  /** An IANA time zone. */
  timezone: string
  enabled: boolean
  /** How many backups are kept that succeeded. */
  keep_count: number
  /** Older ones are removed, but for the last. Null: the count alone decides. */
  keep_days: number | null
  /** The tenant's bucket that new ones go to. Null: the platform's storage. */
  target_id: string | null
  next_at: Date | null
  /** When the workers look for what it no longer keeps. */
  tidy_at: Date
  created_at: Date
  updated_at: Date
}

const schema = new Schema<BackupDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    deploy_server_id: { type: String, required: true },
    database_id: { type: String, required: true },
    name: { type: String, required: true },
    frequency: { type: String, required: true },
    timezone: { type: String, required: true },
    enabled: { type: Boolean, required: true },
    keep_count: { type: Number, required: true },
    keep_days: { type: Number, default: null },
    target_id: { type: String, default: null },
    next_at: { type: Date, default: null },
    tidy_at: { type: Date, required: true },
  },
  { ...documentOptions, collection: 'backups' },
)
tenantScoped(schema)
schema.index({ database_id: 1, name: 1 }, { unique: true })
schema.index({ next_at: 1 })
schema.index({ tidy_at: 1 })
schema.index({ target_id: 1 }, { partialFilterExpression: { target_id: { $type: 'string' } } })
export const Backup = mongoose.model<BackupDocument>('Backup', schema)

export const backupsAtMost = 10

/** Age alone makes a backup leave, so schedules are looked at also if none of their backups ends. */
const tidiedEveryMs = 86_400_000

export type BackupFields = Pick<
  BackupDocument,
  'name' | 'frequency' | 'timezone' | 'enabled' | 'keep_count' | 'keep_days' | 'target_id'
>

const timed = (fields: Pick<BackupFields, 'frequency' | 'timezone' | 'enabled'>): Date | null =>
  fields.enabled ? nextTime(fields, new Date()) : null

const isTimedAs = (backup: BackupDocument, set: Partial<BackupFields>): boolean =>
  (['frequency', 'timezone', 'enabled'] as const).every((key) => (set[key] ?? backup[key]) === backup[key])

/** Throws NotFound, InvalidInput, NameTaken and `too_many_backups`. */
export const createBackup = (
  { _id: database_id, tenant_id, deploy_server_id }: DatabaseDocument,
  fields: BackupFields,
): Promise<BackupDocument> =>
  named('backup schedule', fields.name, () =>
    transaction(async () => {
      const alive = { _id: database_id, tenant_id, status: { $ne: 'deleting' as const } }
      // Touched, so that a deletion that is accepted meanwhile comes first or sees the schedule.
      const there = await Database.updateOne(alive, { $set: { updated_at: new Date() } })
      if (there.matchedCount === 0) throw new NotFound('database')
      if ((await Backup.countDocuments({ database_id, tenant_id })) >= backupsAtMost)
        throw new Problem(
          409,
          'too_many_backups',
          'Too many backup schedules',
          `The database has ${backupsAtMost} backup schedules, and may have no more`,
        )
      if (fields.target_id !== null) await holdTarget(tenant_id, fields.target_id)
      const its = { _id: newId(), tenant_id, deploy_server_id, database_id }
      const times = { next_at: timed(fields), tidy_at: new Date(Date.now() + tidiedEveryMs) }
      return (await new Backup({ ...fields, ...its, ...times }).save()).toObject()
    }, database_id),
  )

/**
 * Throws NotFound, InvalidInput and NameTaken. The next time is computed anew if the timing changes, and what it no longer
 * keeps is removed.
 */
export const changeBackup = (
  backup: BackupDocument,
  changes: { [Field in keyof BackupFields]?: BackupFields[Field] | undefined },
): Promise<BackupDocument> =>
  named('backup schedule', changes.name ?? '', () =>
    transaction(async () => {
      const { _id, tenant_id } = backup
      const given = Object.entries(changes).filter(([, value]) => value !== undefined)
      const set = Object.fromEntries(given) as Partial<BackupFields>
      if (set.target_id) await holdTarget(tenant_id, set.target_id)
      const before = await Backup.findOne({ _id, tenant_id }).lean()
      if (!before) throw new NotFound('backup schedule')
      // A backup that is due is not forgotten.
      const next_at = isTimedAs(before, set) ? before.next_at : timed({ ...before, ...set })
      const changed = await Backup.findOneAndUpdate(
        { _id, tenant_id },
        { $set: { ...set, next_at, tidy_at: new Date() } },
        { returnDocument: 'after' },
      ).lean()
      if (!changed) throw new NotFound('backup schedule')
      return changed
    }, backup._id),
  )

/** The schedule of this database. Throws NotFound. */
export async function backupOf(
  { _id: database_id, tenant_id }: Pick<DatabaseDocument, '_id' | 'tenant_id'>,
  id: string,
): Promise<BackupDocument> {
  const backup = await Backup.findOne({ _id: id, database_id, tenant_id }).lean()
  if (!backup) throw new NotFound('backup schedule')
  return backup
}

/** Removes a schedule. Its backups stay. Throws NotFound. */
export async function deleteBackup({ _id, tenant_id }: BackupDocument): Promise<void> {
  const { deletedCount } = await Backup.deleteOne({ _id, tenant_id })
  if (!deletedCount) throw new NotFound('backup schedule')
}

/** The schedules of all tenants that are due, those that wait longest first. */
export const dueBackups = (limit: number): Promise<BackupDocument[]> =>
  Backup.find({ next_at: { $lte: new Date() } })
    .setOptions(everyTenant)
    .sort({ next_at: 1 })
    .limit(limit)
    .lean()

/** The schedules of all tenants at which a look for what they no longer keep is due, those that wait longest first. */
export const untidyBackups = (limit: number): Promise<BackupDocument[]> =>
  Backup.find({ tidy_at: { $lte: new Date() } })
    .setOptions(everyTenant)
    .sort({ tidy_at: 1 })
    .limit(limit)
    .lean()

/** Has the workers look for what a schedule no longer keeps. Joins the caller's transaction. */
export async function tidySoon({ _id, tenant_id }: Pick<BackupDocument, '_id' | 'tenant_id'>): Promise<void> {
  await Backup.updateOne({ _id, tenant_id }, { $set: { tidy_at: new Date() } })
}

/** Takes up the look that is due. Joins the caller's transaction. Returns whether no other worker has. */
export async function takeTidying({ _id, tenant_id, tidy_at }: BackupDocument): Promise<boolean> {
  const next = { tidy_at: new Date(Date.now() + tidiedEveryMs) }
  const { modifiedCount } = await Backup.updateOne({ _id, tenant_id, tidy_at }, { $set: next })
  return modifiedCount > 0
}

/** Removes the schedules of a database, or of all of a deploy server. */
export async function forgetBackups(
  tenant_id: string,
  of: { database_id: string } | { deploy_server_id: string },
): Promise<void> {
  await Backup.deleteMany({ ...of, tenant_id })
}

import { beforeAll, describe, expect, test } from '@jest/globals'
import { makeRefillActivities } from '../../activities/deploy/refills.ts'
import { newId } from '../../lib/ids.ts'
import { BackupExecution } from '../../models/deploy/backup-executions.ts'
import { acceptBackupDeletion } from '../../models/deploy/backup-acceptance.ts'
import { Backup, changeBackup } from '../../models/deploy/backups.ts'
import {
  acceptDatabaseDeletion,
  acceptRestore,
  acceptUpgrade,
  changeDatabase,
  forgetFormerVolume,
} from '../../models/deploy/database-acceptance.ts'
import { Database, type DatabaseDocument } from '../../models/deploy/databases.ts'
import { noteVolumesDiscarded } from '../../models/deploy/discarded-volumes.ts'
import type { DatabaseImages } from '../../models/deploy/engines/index.ts'
import { dataStorageOf } from '../../models/deploy/storages.ts'
import { databaseRecordsOf } from '../support/database-records.ts'
import { Operation } from '../../models/operations.ts'
import { eventually } from '../support/eventually.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Rules of databases and their backups, on records of databases that are on no engine. The stack's worker acts on them.

let tenant: TestTenant
let records: ReturnType<typeof databaseRecordsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  records = databaseRecordsOf(tenant.id)
})

/** The backups of a schedule that are left, once the worker has looked at it. */
async function leftOf(backup_id: string, tenant_id = tenant.id): Promise<string[]> {
  const of = { backup_id, tenant_id }
  await eventually(async () => {
    const schedule = await Backup.findOne({ _id: backup_id, tenant_id }).lean()
    const waits = !schedule || schedule.tidy_at <= new Date()
    return !waits && !(await BackupExecution.exists({ ...of, operation_id: { $ne: null } }))
  })
  return (await BackupExecution.find(of).sort({ created_at: -1 }).lean()).map(({ _id }) => _id)
}

const day = 86_400_000

describe('a schedule of backups', () => {
  test('does not count the bases that the platform makes by itself, which leave with older ones', async () => {
    const database = await records.database({ status: 'stopped' })
    const schedule = await records.schedule(database, { keep_count: 2 })
    const own = (days: number) => records.execution(database, { backup_id: schedule._id, days })
    const asked = (days: number) =>
      records.execution(database, {
        backup_id: schedule._id,
        days,
        scheduled_at: new Date(Date.now() - days * day),
      })
    const kept = [await own(0.1), await own(0.2), await asked(1), await own(1.5), await asked(2)]
    await own(3)
    await asked(4)
    await changeBackup(schedule, { keep_count: 2 })
    const ids = kept.map(({ _id }) => _id)
    expect(await leftOf(schedule._id)).toEqual(ids)
    await changeBackup(schedule, { keep_days: 1 })
    expect(await leftOf(schedule._id)).toEqual(ids.slice(0, 3))
  })

  test('does not keep more than a few bases that the platform makes by itself, though it makes no other', async () => {
    const database = await records.database({ status: 'stopped' })
    const schedule = await records.schedule(database, { keep_count: 2 })
    const made: string[] = []
    for (let days = 1; days <= 13; days++)
      made.push((await records.execution(database, { backup_id: schedule._id, days }))._id)
    await changeBackup(schedule, { keep_count: 2 })
    expect(await leftOf(schedule._id)).toEqual(made.slice(0, 11))
  })

  test('lets the oldest base that the platform made by itself leave for the next backup', async () => {
    const other = await makeTenant({ max_backup_gib: 1 })
    const full = databaseRecordsOf(other.id)
    const database = await full.database({ status: 'stopped' })
    const schedule = await full.schedule(database, { keep_count: 2 })
    const copy = { parts: 0, stored_bytes: 0.3 * 1024 ** 3, dump_bytes: 0, counts: [], base: null }
    const made = async (days: number, scheduled_at: Date | null = null) =>
      (await full.execution(database, { backup_id: schedule._id, days, copy, scheduled_at }))._id
    const newest = await made(0.1)
    await made(1)
    const asked = await made(2, new Date(Date.now() - 2 * day))
    for (const _look of ['without room', 'with room']) {
      await changeBackup(schedule, { keep_count: 2 })
      expect(await leftOf(schedule._id, other.id)).toEqual([newest, asked])
    }
  })

  test('keeps a backup from which a database is restored, or will be', async () => {
    const database = await records.database({ status: 'stopped' })
    const schedule = await records.schedule(database, { keep_count: 1 })
    const made = (days: number) =>
      records.execution(database, {
        backup_id: schedule._id,
        days,
        scheduled_at: new Date(Date.now() - days * day),
      })
    const [newest, filling, beginning, accepted] = [
      await made(0.1),
      await made(1),
      await made(2),
      await made(3),
    ]
    await made(4)
    const { version, image } = database
    const before = { version, image }
    const operation_id = newId()
    const of = { operation_id, execution_id: filling._id, storage_id: newId() }
    const refill = { ...of, ...before, before, memory_mib: 32 }
    const filled = await records.database({ refill, operation_id })
    await records.database({ status: 'error', begins_with: { execution_id: beginning._id } })
    const its = { tenant_id: tenant.id, resource_kind: 'database', resource_id: newId(), resource_name: 'x' }
    const input = { execution_id: accepted._id }
    const restore = { verb: 'restore', input, state: 'running', open: true, workflow_id: newId() }
    const operation = await new Operation({ ...its, ...restore }).save()
    await changeBackup(schedule, { keep_count: 1 })
    const used = [filling, beginning, accepted].map(({ _id }) => _id)
    expect(await leftOf(schedule._id)).toEqual([newest._id, ...used])
    for (const id of used)
      await expect(acceptBackupDeletion({ ...by(), over_http: true }, id)).rejects.toMatchObject({
        status: 409,
        code: 'backup_in_use',
      })

    await Operation.deleteOne({ _id: operation._id, tenant_id: tenant.id })
    await Database.updateOne({ _id: filled._id, tenant_id: tenant.id }, { $set: { refill: null } })
    await changeBackup(schedule, { keep_count: 1 })
    expect(await leftOf(schedule._id)).toEqual([newest._id, beginning._id])
  })

  test('keeps none that is older than its days, but the last, though the database is stopped', async () => {
    const database = await records.database({ status: 'stopped' })
    const { _id: backup_id, ...schedule } = await records.schedule(database)
    const [first, second] = [
      await records.execution(database, { backup_id, days: 0.5 }),
      await records.execution(database, { backup_id, days: 0.9 }),
    ]
    await records.execution(database, { backup_id, days: 2 })
    const byHand = await records.execution(database, { days: 9 })
    await changeBackup({ _id: backup_id, ...schedule }, { keep_days: 1 })
    expect(await leftOf(backup_id)).toEqual([first._id, second._id])
    expect(await BackupExecution.exists({ _id: byHand._id, tenant_id: tenant.id })).not.toBeNull()

    const old = await records.database({ status: 'stopped' })
    const { _id: other, ...its } = await records.schedule(old)
    const last = await records.execution(old, { backup_id: other, days: 20 })
    await records.execution(old, { backup_id: other, days: 21 })
    await changeBackup({ _id: other, ...its }, { keep_days: 1 })
    expect(await leftOf(other)).toEqual([last._id])
  })

  test('is looked at once a day: age alone makes a backup leave', async () => {
    const database = await records.database({ status: 'stopped' })
    const { _id: backup_id } = await records.schedule(database, { keep_days: 1, enabled: false })
    const kept = await records.execution(database, { backup_id })
    await records.execution(database, { backup_id, days: 2 })
    await Backup.updateOne({ _id: backup_id, tenant_id: tenant.id }, { $set: { tidy_at: new Date() } })
    expect(await leftOf(backup_id)).toEqual([kept._id])
    const schedule = await Backup.findOne({ _id: backup_id, tenant_id: tenant.id }).lean()
    expect(schedule?.tidy_at.getTime()).toBeGreaterThan(Date.now() + 23 * 3_600_000)
  })

  test.each<[string, Partial<DatabaseDocument>, { lateMs?: number; open?: boolean }]>([
    ['The platform was down at the scheduled time', {}, { lateMs: 2 * 3_600_000 }],
    ['The previous backup had not ended', {}, { open: true }],
    ['The database was stopped', { status: 'stopped' }, {}],
  ])('misses a backup, and says why: %s', async (reason, over, { lateMs = 0, open = false }) => {
    const database = await records.database(over)
    if (open) await records.execution(database, { status: 'creating', ended_at: null })
    const next_at = new Date(Date.now() - lateMs)
    const { _id: backup_id } = await records.schedule(database, { next_at })
    const missed = await eventually(() => BackupExecution.findOne({ backup_id, tenant_id: tenant.id }).lean())
    expect(missed).toMatchObject({ status: 'skipped', status_reason: reason, scheduled_at: next_at })
  })

  test('makes the last of several backups whose times have passed, and tells the others as one', async () => {
    const database = await records.database()
    const next_at = new Date(Math.floor(Date.now() / 3_600_000) * 3_600_000 - 5 * 3_600_000)
    const { _id: backup_id } = await records.schedule(database, { frequency: '0 * * * *', next_at })
    const of = { backup_id, tenant_id: tenant.id }
    const made = await eventually(() => BackupExecution.findOne({ ...of, status: { $ne: 'skipped' } }).lean())
    expect(Date.now() - Number(made?.scheduled_at)).toBeLessThan(3_600_000)
    const missed = await BackupExecution.find({ ...of, status: 'skipped' }).lean()
    // One more if an hour has begun meanwhile.
    const status_reason = expect.stringMatching(
      /^The platform was down at the scheduled time and at [45] after it$/,
    )
    expect(missed).toMatchObject([{ scheduled_at: next_at, status_reason }])

    const minutely = { frequency: '* * * * *', next_at: new Date(Date.now() - 3 * day) }
    const { _id: often } = await records.schedule(await records.database(), minutely)
    const many = await eventually(() =>
      BackupExecution.findOne({ backup_id: often, tenant_id: tenant.id, status: 'skipped' }).lean(),
    )
    expect(many?.status_reason).toMatch(/and at 1000 or more after it$/)
    await Backup.deleteOne({ _id: often, tenant_id: tenant.id })
  })

  test('keeps its next time, which may be due, unless its timing changes', async () => {
    const next_at = new Date(Date.now() + 1.5 * day)
    const schedule = await records.schedule(await records.database(), { next_at })
    const same = { keep_count: 3, keep_days: 9, frequency: schedule.frequency, enabled: true }
    expect(await changeBackup(schedule, same)).toMatchObject({ keep_count: 3, next_at })
    const { next_at: other } = await changeBackup(schedule, { timezone: 'Asia/Tokyo' })
    expect(other).not.toEqual(next_at)
    expect(await changeBackup(schedule, { enabled: false })).toMatchObject({ next_at: null })
  })

  test('keeps the last 50 of those that it missed, and no more', async () => {
    const database = await records.database({ status: 'stopped' })
    const { _id: backup_id } = await records.schedule(database)
    for (let days = 1; days <= 51; days++)
      await records.execution(database, { backup_id, days, status: 'skipped' })
    const of = { _id: backup_id, tenant_id: tenant.id }
    await Backup.updateOne(of, { $set: { next_at: new Date() } })
    await eventually(() =>
      BackupExecution.exists({ backup_id, tenant_id: tenant.id, scheduled_at: { $ne: null } }),
    )
    expect(await leftOf(backup_id)).toHaveLength(50)
  })
})

const by = () => ({ tenant_id: tenant.id, id: null })
const images: DatabaseImages = {}

test.each<[string, string, (database: DatabaseDocument) => Promise<unknown>]>([
  [
    'a change to a version of another line',
    'cannot use the data of 7.4.5 as it is',
    (one) => changeDatabase(one, { version: '8.2.1' }, images),
  ],
  [
    'a change to an older version',
    'cannot use the data of 7.4.5 as it is',
    (one) => changeDatabase(one, { version: '7.2.10' }, images),
  ],
  [
    'an upgrade that is not offered',
    'the version can be',
    (one) => acceptUpgrade(by(), one._id, '9.9.9', images),
  ],
  [
    'a backup that a newer version wrote',
    'the backup was written by 8.2.1, and 7.4.5 cannot restore it',
    async (one) => {
      const newer = await records.database({ version: '8.2.1' })
      const { _id: execution_id } = await records.execution(newer)
      return acceptRestore(by(), one._id, { execution_id }, {})
    },
  ],
])('a database refuses %s', async (_, words, ask) => {
  const database = await records.database({ version: '7.4.5' })
  const error = await ask(database).then(
    () => null,
    (refused: unknown) => refused,
  )
  expect(error).toMatchObject({ status: 422 })
  expect(JSON.stringify(error)).toContain(words)
})

test('a restore that fails brings back the volume that it replaced, also if that was deleted meanwhile', async () => {
  const older = { storage_id: newId(), version: '8.0.3', kept_at: new Date() }
  const operation_id = newId()
  const refill = {
    operation_id,
    execution_id: newId(),
    storage_id: newId(),
    version: '8.0.3',
    image: 'redis:8.0.3',
    before: { version: '8.0.3', image: 'redis:8.0.3' },
    memory_mib: 32,
  }
  const database = await records.database({ former_volumes: [older], refill })
  const { _id, tenant_id } = database
  const { _id: before } = await dataStorageOf(database)
  const { switchVolumes, takeVolumesBack } = makeRefillActivities()
  await switchVolumes(_id)
  expect((await dataStorageOf(database))._id).toBe(refill.storage_id)
  await forgetFormerVolume(database, before)
  await takeVolumesBack(_id, operation_id)
  expect((await dataStorageOf(database))._id).toBe(before)
  expect((await Database.findOne({ _id, tenant_id }).lean())?.former_volumes).toEqual([older])
})

test('a volume to which clients may have written is a former one after the database has gone back', async () => {
  const operation_id = newId()
  const refill = {
    operation_id,
    execution_id: newId(),
    storage_id: newId(),
    version: '8.2.1',
    image: 'redis:8.2.1',
    before: { version: '7.4.5', image: 'redis:7.4.5' },
    memory_mib: 32,
  }
  const database = await records.database({ refill, version: '7.4.5' })
  const { _id, tenant_id } = database
  const refills = makeRefillActivities()
  await refills.switchVolumes(_id)
  await refills.keepRefill(_id)
  for (const _time of ['first', 'repeated']) {
    await refills.takeVolumesBack(_id, operation_id)
    expect(await Database.findOne({ _id, tenant_id }).lean()).toMatchObject({
      version: '7.4.5',
      former_volumes: [{ storage_id: refill.storage_id, version: '8.2.1' }],
    })
  }
})

test('an upgrade waits for no backup: it is refused during one', async () => {
  const database = await records.database({ version: '7.4.5' })
  await records.execution(database, { status: 'creating', ended_at: null })
  const upgrade = acceptUpgrade(by(), database._id, '8.2.1', images)
  await expect(upgrade).rejects.toMatchObject({ status: 409, code: 'backup_in_progress' })
})

test('a database that could not be deleted keeps its schedules', async () => {
  const database = await records.database()
  const { _id, tenant_id } = database
  const schedule = await records.schedule(database)
  await acceptDatabaseDeletion(by(), _id, {})
  await eventually(async () => (await Database.findOne({ _id, tenant_id }).lean())?.status === 'error')
  expect(await Backup.exists({ _id: schedule._id, tenant_id })).not.toBeNull()
})

test('a former volume that does not serve is a former volume again, and is not deleted meanwhile', async () => {
  const older = { storage_id: newId(), version: '7.4.5', kept_at: new Date() }
  const operation_id = newId()
  const database = await records.database({ former_volumes: [older], version: '8.2.1', operation_id })
  const { _id, tenant_id } = database
  const { _id: present } = await dataStorageOf(database)
  const now = () => Database.findOne({ _id, tenant_id }).lean()
  const refills = makeRefillActivities()
  await refills.beginReturn(_id, { volume_id: older.storage_id, image: 'redis:7.4.5' }, operation_id)
  await expect(forgetFormerVolume(database, older.storage_id)).rejects.toMatchObject({ status: 409 })
  for (const time of ['first', 'repeated']) {
    await refills.switchVolumes(_id)
    expect([time, (await dataStorageOf(database))._id]).toEqual([time, older.storage_id])
    const former_volumes = [{ storage_id: present, version: '8.2.1' }]
    expect(await now()).toMatchObject({ version: '7.4.5', image: 'redis:7.4.5', former_volumes })
  }
  for (const time of ['first', 'repeated']) {
    await refills.takeVolumesBack(_id, operation_id)
    expect([time, (await dataStorageOf(database))._id]).toEqual([time, present])
    expect(await now()).toMatchObject({ version: '8.2.1', former_volumes: [older] })
  }
  await refills.endRefill(_id)
  await forgetFormerVolume(database, older.storage_id)
  const gone = refills.beginReturn(_id, { volume_id: older.storage_id, image: 'redis:7.4.5' }, newId())
  await expect(gone).rejects.toMatchObject({ type: 'not_found' })
})

test('a database whose worker lost its volumes does not go back to a former one', async () => {
  const former = { storage_id: newId(), version: '8.0.3', kept_at: new Date() }
  const { _id, tenant_id, deploy_server_id } = await records.database({
    volume_node: 'w7',
    former_volumes: [former],
  })
  await noteVolumesDiscarded(deploy_server_id, 'w7')
  expect(await Database.findOne({ _id, tenant_id }).lean()).toMatchObject({
    status: 'error',
    former_volumes: [],
  })
  const asked = acceptRestore(by(), _id, { volume_id: former.storage_id }, images)
  await expect(asked).rejects.toMatchObject({ status: 422 })
})

import { afterEach, beforeAll, expect, test } from '@jest/globals'
import { makeBackupActivities } from '../../activities/deploy/backups.ts'
import { logAfter } from '../../models/deploy/archive-orders.ts'
import type { BackupExecutionDocument } from '../../models/deploy/backup-executions.ts'
import type { DatabaseDocument } from '../../models/deploy/databases.ts'
import { baseFor, seenPointInTime } from '../../models/deploy/point-in-time.ts'
import { archived, at, baseAt, named, removeArchives } from '../support/archive-records.ts'
import { databaseRecordsOf } from '../support/database-records.ts'
import { makeTenant } from '../support/tenants.ts'

// What looks at archived logs find, on records of databases that are on no engine.

let records: ReturnType<typeof databaseRecordsOf>
let tenant_id: string
beforeAll(async () => {
  tenant_id = (await makeTenant()).id
  records = databaseRecordsOf(tenant_id)
})
afterEach(() => removeArchives(tenant_id))

const rangesOf = async (database: DatabaseDocument) => (await seenPointInTime(database))?.ranges

const verified = ({ _id }: BackupExecutionDocument, damaged: number[]): Promise<void> =>
  makeBackupActivities().noteVerified(_id, {
    by: 'restore',
    tables: 1,
    rows: 1,
    damaged_segments: damaged.map(named),
  })

test('a log with several damaged segments leads to the moments before the first', async () => {
  const { database, archive } = await archived(records, 5)
  const base = await baseAt(records, database, archive, 1)
  expect(await rangesOf(database)).toEqual([{ earliest: at(5), latest: at(50), is_cut_off: false }])
  await verified(base, [3, 5])
  expect(await rangesOf(database)).toEqual([{ earliest: at(5), latest: at(20), is_cut_off: true }])
  await expect(baseFor({ tenant_id, id: null }, database._id, at(35))).rejects.toMatchObject({ status: 422 })
})

test.each([
  { what: 'up to the next base', next: 3, stored: 5, segments: [1, 2, 3] },
  { what: 'up to the last one that is stored', next: 4, stored: 3, segments: [1, 2, 3] },
  { what: 'none, if none is stored', next: 2, stored: 0, segments: [] },
])('a look at a base reads the segments after it: $what', async ({ next, stored, segments }) => {
  const { database, archive } = await archived(records, stored)
  const base = await baseAt(records, database, archive, 1)
  await baseAt(records, database, archive, next)
  expect(await logAfter(base, null)).toMatchObject({ segments: segments.map(named) })
})

test('a segment that was never stored is not damaged: the log leads to its end', async () => {
  const { database, archive } = await archived(records, 3)
  const base = await baseAt(records, database, archive, 1)
  await baseAt(records, database, archive, 4) // the archive ended before its segment was stored
  await verified(base, [4])
  expect(await rangesOf(database)).toEqual([{ earliest: at(5), latest: at(30), is_cut_off: false }])
  expect(await baseFor({ tenant_id, id: null }, database._id, at(28))).toMatchObject({ _id: base._id })
})

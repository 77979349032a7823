import { beforeAll, expect, test } from '@jest/globals'
import { makeRefillActivities } from '../../activities/deploy/refills.ts'
import { newId } from '../../lib/ids.ts'
import { forgetFormerVolume } from '../../models/deploy/database-acceptance.ts'
import { Database } from '../../models/deploy/databases.ts'
import { dataStorageOf } from '../../models/deploy/storages.ts'
import { databaseRecordsOf } from '../support/database-records.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Rules of databases and their backups, on records of databases that are on no engine. The stack's worker acts on them.

let tenant: TestTenant
let records: ReturnType<typeof databaseRecordsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  records = databaseRecordsOf(tenant.id)
})

test('a restore that fails brings back the volume that it replaced, also if that was deleted meanwhile', async () => {
  const older = { storage_id: newId(), version: '8.0.3', kept_at: new Date() }
  const refill = {
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
  await takeVolumesBack(_id)
  expect((await dataStorageOf(database))._id).toBe(before)
  expect((await Database.findOne({ _id, tenant_id }).lean())?.former_volumes).toEqual([older])
})

import { beforeAll, expect, test } from '@jest/globals'
import { makeDatabaseActivities } from '../../activities/deploy/databases.ts'
import { makeRefillActivities } from '../../activities/deploy/refills.ts'
import { newId } from '../../lib/ids.ts'
import { needUnused } from '../../models/deploy/backup-uses.ts'
import { acceptDatabaseStart, forgetFormerVolume } from '../../models/deploy/database-acceptance.ts'
import { Database, type DatabaseDocument, type Refill } from '../../models/deploy/databases.ts'
import type { DeployServerDocument } from '../../models/deploy/deploy-servers.ts'
import { occupantsOf } from '../../models/deploy/occupants.ts'
import { dataStorageOf, volumeOf } from '../../models/deploy/storages.ts'
import { databaseRecordsOf } from '../support/database-records.ts'
import { deployRecordsOf } from '../support/deploy-records.ts'
import { eventually } from '../support/eventually.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// A refill belongs to one operation. What an operation left that could not be undone is of no use to the next one.

const refills = makeRefillActivities()
const memory_mib = 32
const [then, later] = ['2026-01-01T00:00:00.000Z', '2026-01-02T00:00:00.000Z']

let tenant: TestTenant
let records: ReturnType<typeof databaseRecordsOf>
let rows: ReturnType<typeof deployRecordsOf>
let server: DeployServerDocument
beforeAll(async () => {
  tenant = await makeTenant()
  records = databaseRecordsOf(tenant.id)
  rows = deployRecordsOf(tenant.id)
  server = await makeServer(null)
})

const makeServer = async (host_id: string | null): Promise<DeployServerDocument> =>
  rows.server([await rows.node(null, { name: 'cp' }), await rows.node(host_id, { name: 'w1' })])

/** A database with data on a worker, and a backup of it. */
async function filled(over: Partial<DatabaseDocument> = {}) {
  const placed = { deploy_server_id: server._id, volume_node: 'w1', has_data: true, runs: true }
  const database = await records.database({ ...placed, memory_mib, ...over })
  const copy = { parts: 0, stored_bytes: 0, dump_bytes: 0, counts: [], base: null }
  return { database, execution: await records.execution(database, { copy }) }
}

const now = async ({ _id, tenant_id }: DatabaseDocument) => Database.findOne({ _id, tenant_id }).lean()

async function set({ _id, tenant_id }: DatabaseDocument, fields: Partial<DatabaseDocument>) {
  await Database.updateOne({ _id, tenant_id }, { $set: fields })
}

const mountedBy = async (database: DatabaseDocument): Promise<string> => (await dataStorageOf(database))._id

function refillOf(database: DatabaseDocument, over: Partial<Refill> = {}): Refill {
  const { version, image } = database
  const before = { version, image }
  return {
    operation_id: newId(),
    execution_id: newId(),
    storage_id: newId(),
    ...before,
    before,
    memory_mib,
    ...over,
  }
}

test('a restore of the same backup does not reuse what another operation left, nor the volume with the data', async () => {
  const { database, execution } = await filled()
  const { _id } = database
  const [failed, next] = [newId(), newId()]
  const as = { operation_id: failed, at: then, to: { version: '8.2.1', image: 'redis:8.2.1' } }
  await refills.beginRefill(_id, execution._id, as)
  await refills.switchVolumes(_id)
  await refills.keepRefill(_id)
  const mounted = await mountedBy(database)
  expect((await now(database))?.refill?.storage_id).toBe(mounted)

  await refills.beginRefill(_id, execution._id, { operation_id: next, at: later })
  const begun = (await now(database))?.refill
  const present = { version: '8.2.1', image: 'redis:8.2.1' }
  expect(begun).toMatchObject({ operation_id: next, at: new Date(later), before: present, ...present })
  expect(begun?.storage_id).not.toBe(mounted)
  expect([begun?.stays, begun?.former_id]).toEqual([undefined, undefined])

  await refills.beginRefill(_id, execution._id, { operation_id: next, at: later })
  expect((await now(database))?.refill).toEqual(begun)
})

test('a return to a former volume does not reuse what another operation left', async () => {
  const { database } = await filled({ version: '8.2.1' })
  const { _id } = database
  const former = { storage_id: newId(), version: '7.4.5', kept_at: new Date() }
  const stale = refillOf(database, { storage_id: former.storage_id, stays: true })
  await set(database, { former_volumes: [former], refill: stale })
  const operation_id = newId()
  await refills.beginReturn(_id, { volume_id: former.storage_id, image: 'redis:7.4.5' }, operation_id)
  const begun = { operation_id, execution_id: null, version: '7.4.5', image: 'redis:7.4.5', returns: former }
  expect((await now(database))?.refill).toMatchObject(begun)
})

test('an operation takes back no switch of another one', async () => {
  const { database, execution } = await filled()
  const { _id } = database
  const before = await mountedBy(database)
  const switching = newId()
  await refills.beginRefill(_id, execution._id, { operation_id: switching })
  await refills.switchVolumes(_id)
  const mounted = await mountedBy(database)
  await refills.takeVolumesBack(_id, newId())
  expect(await mountedBy(database)).toBe(mounted)
  await refills.takeVolumesBack(_id, switching)
  expect(await mountedBy(database)).toBe(before)
})

test('a refill takes a backup, a former volume and memory only while its operation is open', async () => {
  const placed = await makeServer(newId())
  const { database, execution } = await filled({ deploy_server_id: placed._id })
  const { _id } = database
  const former = { storage_id: newId(), version: '8.0.3', kept_at: new Date() }
  const refill = refillOf(database, { execution_id: execution._id, storage_id: former.storage_id })
  const memory = async () => (await occupantsOf(placed)).find(({ id }) => id === _id)?.memory_mib
  const named = async () => (await makeDatabaseActivities().volumesOfDatabase(_id, 'all'))?.names
  await set(database, { refill, former_volumes: [former], operation_id: String(refill.operation_id) })
  await expect(needUnused(execution)).rejects.toMatchObject({ status: 409, code: 'backup_in_use' })
  await expect(forgetFormerVolume(database, former.storage_id)).rejects.toMatchObject({ status: 409 })
  expect(await memory()).toBe(2 * memory_mib)
  expect(await named()).toContain(volumeOf(former.storage_id))

  await set(database, { operation_id: null })
  await needUnused(execution)
  await forgetFormerVolume(database, former.storage_id)
  expect(await memory()).toBe(memory_mib)
  expect(await named()).not.toContain(volumeOf(former.storage_id))
})

test('a refill ends with its operation, also if that could not be undone', async () => {
  const database = await records.database({ status: 'stopped' })
  await set(database, { refill: refillOf(database) })
  await acceptDatabaseStart({ tenant_id: tenant.id, id: null }, database._id, 'start')
  const ended = await eventually(async () => {
    const one = await now(database)
    return one?.operation_id === null && one
  })
  expect(ended).toMatchObject({ refill: null })
})

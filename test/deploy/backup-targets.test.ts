import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import { UnwantedBlob } from '../../models/blobs.ts'
import { ArchiveSegment } from '../../models/deploy/archive-segments.ts'
import { BackupPart } from '../../models/deploy/backup-parts.ts'
import { BackupTarget } from '../../models/deploy/backup-targets.ts'
import { Backup } from '../../models/deploy/backups.ts'
import { EventDelivery } from '../../models/deploy/events.ts'
import type { DeployServerBody } from '../support/client.ts'
import { backupTargetsOf } from '../support/clients/backup-targets.ts'
import { databasesOf } from '../support/clients/databases.ts'
import { eventsOf } from '../support/clients/events.ts'
import { insideOf, rows } from '../support/database-insides.ts'
import { hasEngines, makeDatabaseImages } from '../support/database-images.ts'
import { eventually } from '../support/eventually.ts'
import { mistakeAt } from '../support/refusals.ts'
import { hasS3Server, openS3Server, type S3Server } from '../support/s3-server.ts'
import { momentsOf } from '../support/moments.ts'
import { tenantS3 } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Backups in a bucket of the tenant, on a server that checks signatures (test/support/s3-server.ts).

const describeTargets = hasEngines && hasS3Server ? describe : describe.skip

let s3: S3Server
let tenant: TestTenant
let server: DeployServerBody
let targets: ReturnType<typeof backupTargetsOf>
let databases: ReturnType<typeof databasesOf>
let inside: ReturnType<typeof insideOf>
let database: string

beforeAll(async () => {
  if (!hasEngines || !hasS3Server) return
  s3 = await openS3Server(tenantS3.port)
  tenant = await makeTenant({ max_backup_gib: 0 }) // in the platform's storage
  targets = backupTargetsOf(tenant.owner)
  await makeDatabaseImages('redis', 'postgresql')
  server = await tenant.owner.deployServers.make({ worker_instance_type: 'medium' })
  databases = databasesOf(tenant.owner, server.id)
  inside = insideOf(tenant, server)
  await eventsOf(tenant.owner, server.id).make({ url: 'https://events.example' })
  database = (await databases.make()).id
  await inside.write(database, 'redis')
})
afterAll(() => s3?.close())

const placeOf = (bucket: string) => ({ endpoint: s3.endpoint, bucket, ...s3.access })

async function makeTarget(bucket: string, over: object = {}): Promise<string> {
  await s3.makeBucket(bucket)
  const { status, body } = await targets.create({ ...placeOf(bucket), ...over })
  expect([status, body]).toEqual([201, expect.objectContaining({ bucket, fault: null })])
  return String(body['id'])
}

async function backUp(target_id: string) {
  const { id, operation } = await databases.backUp(database, { target_id })
  await operation.success()
  return databases.execution(id)
}

describeTargets('a backup target', () => {
  test('is added only if an object can be written, read and deleted, and never shows its secret', async () => {
    await s3.makeBucket('checked')
    const place = placeOf('checked')
    expect(await targets.create({ ...place, secret_access_key: 'another' })).toMatchObject({
      status: 422,
      body: { code: 'backup_target_unusable', step: 'write', reason: 'credentials_refused' },
    })
    expect(await targets.create({ ...place, bucket: 'missing' })).toMatchObject({
      status: 422,
      body: {
        reason: 'no_such_bucket',
        detail: 'Writing an object failed: There is no such bucket',
      },
    })
    expect(await targets.create({ ...place, endpoint: 'http://169.254.169.254' })).toMatchObject(
      mistakeAt('/endpoint'),
    )
    expect(await targets.create({ ...place, prefix: '../other/' })).toMatchObject(mistakeAt('/prefix'))
    expect(await targets.list()).toEqual([])

    const { body, status } = await targets.create({ ...place, name: 'kept', prefix: 'our/' })
    expect(status).toBe(201)
    const id = String(body['id'])
    expect(await s3.keys('checked')).toEqual([])
    expect(JSON.stringify([body, await targets.get(id)])).not.toContain(s3.access.secret_access_key)
    const stored = await BackupTarget.findOne({ _id: id, tenant_id: tenant.id }).lean()
    expect(JSON.stringify(stored)).not.toContain(s3.access.secret_access_key)

    expect(await targets.change(id, { secret_access_key: 'another' })).toMatchObject({
      status: 422,
      body: { reason: 'credentials_refused' },
    })
    expect(await targets.change(id, { name: 'renamed', prefix: 'new/' })).toMatchObject({
      status: 200,
      body: { name: 'renamed', prefix: 'new/' },
    })
    await s3.removeBucket('checked')
    const fault = { step: 'write', reason: 'no_such_bucket', message: 'There is no such bucket' }
    expect(await targets.check(id)).toMatchObject({ status: 200, body: { fault } })
    expect(await targets.get(id)).toMatchObject({ fault })
    expect(await targets.delete(id)).toMatchObject({ status: 204 })
  })
})

describeTargets('a backup in a bucket of the tenant', () => {
  test('has the log of a database too, by which it is recovered to a moment', async () => {
    const target_id = await makeTarget('moments')
    const moments = momentsOf(tenant, databases, inside)
    const id = await moments.make({ point_in_time: { enabled: true, target_id } })
    await inside.write(id, 'postgresql')
    const [moment, written] = [await moments.now(id), await inside.digest(id, 'postgresql')]
    await inside.clear(id, 'postgresql')
    await moments.reaches(id, await moments.now(id))
    const archives = (await moments.archives(id)).map(({ _id }) => _id)
    const segments = await ArchiveSegment.find({ archive_id: { $in: archives }, tenant_id: tenant.id }).lean()
    expect(new Set(segments.map(({ blob }) => blob.store))).toEqual(new Set(['target']))
    await (await databases.recover(id, moment)).operation.success()
    expect(await inside.digest(id, 'postgresql')).toBe(written)
    await (await databases.delete(id)).operation.success()
  })

  test('is there and not in the platform’s storage, encrypted, and restores the database', async () => {
    const target = await makeTarget('restored', { prefix: 'nightly/' })
    const execution = await backUp(target)
    const location = `s3://restored/nightly/${database}/${execution.id}/`
    expect(execution).toMatchObject({ target_id: target, location, verified: { by: 'restore', rows } })
    const [key = '', ...others] = await s3.keys('restored')
    expect([key.startsWith(`nightly/${database}/${execution.id}/`), others]).toEqual([true, []])
    expect((await s3.read('restored', key)).includes('key1')).toBe(false)
    const parts = await BackupPart.find({ execution_id: execution.id, tenant_id: tenant.id }).lean()
    expect(parts.map(({ blob }) => blob)).toEqual([{ key, store: 'target', target_id: target }])
    expect(await mongoose.connection.collection('blobs.files').countDocuments({ filename: key })).toBe(0)

    await inside.clear(database, 'redis')
    await (await databases.restore(database, execution.id)).operation.success()
    expect(await inside.count(database, 'redis')).toBe(rows)

    const refused = await targets.delete(target)
    expect(refused).toMatchObject({
      status: 409,
      body: { code: 'backup_target_in_use', uses: { backups: 1 } },
    })
    await (await databases.deleteExecution(execution.id)).operation.success()
    await eventually(async () => (await s3.keys('restored')).length === 0)
    await eventually(async () => (await targets.delete(target)).status === 204)
  })

  test('that is damaged or removed there is found by the next look', async () => {
    const target = await makeTarget('damaged')
    const { id } = await backUp(target)
    const [key = ''] = await s3.keys('damaged')
    await s3.spoil('damaged', key)
    await (await databases.verify(id)).operation.success()
    expect(await databases.execution(id)).toMatchObject({
      status: 'damaged',
      reason: expect.stringMatching(/^The backup is damaged: part 1 of 1 is not as it was written/),
    })
    await s3.remove('damaged', key)
    await (await databases.verify(id)).operation.success()
    expect(await databases.execution(id)).toMatchObject({
      status: 'damaged',
      reason: 'The backup is damaged: part 1 of 1 is no longer stored',
    })
  })

  test('is kept by its schedule as long as it says; the target goes when its backups are forgotten', async () => {
    const target = await makeTarget('scheduled')
    const asked = { frequency: '0 3 1 1 *', keep_count: 1, target_id: target }
    const { body } = await databases.schedule(database, asked)
    const backup = String(body['id'])
    expect(body).toMatchObject({ target_id: target })
    const next = async (before: string[]) => {
      await Backup.updateOne({ _id: backup, tenant_id: tenant.id }, { $set: { next_at: new Date() } })
      return eventually(async () => {
        const all = await databases.executionsOf(database, backup)
        const succeeded = all.filter(({ status }) => status === 'succeeded').map(({ id }) => id)
        const keys = await s3.keys('scheduled')
        return succeeded.length === 1 && keys.length === 1 && !before.includes(keys[0] ?? '') && keys
      })
    }
    const first = await next([])
    const second = await next(first)

    expect(await targets.delete(target, '?forget_backups=true')).toMatchObject({
      status: 409,
      body: { uses: { schedules: 1 } },
    })
    expect(await databases.deleteSchedule(database, backup)).toMatchObject({ status: 204 })
    expect(await targets.delete(target)).toMatchObject({ status: 409, body: { uses: { backups: 1 } } })
    expect(await targets.delete(target, '?forget_backups=true')).toMatchObject({ status: 204 })
    expect(await databases.executions(`&target_id=${target}`)).toEqual([])
    expect(await s3.keys('scheduled')).toEqual(second)
    expect(await tenant.owner.ask('GET', `/api/v1/backup-targets/${target}`)).toMatchObject({ status: 404 })
    const gone = await tenant.owner.ask(
      'POST',
      `/api/v1/deploy-servers/${server.id}/databases/${database}/backup-executions`,
      { target_id: target },
    )
    expect(gone).toMatchObject(mistakeAt('/target_id'))
  })

  test('does not count against the limit of the platform’s storage, which refuses others', async () => {
    const path = `/api/v1/deploy-servers/${server.id}/databases/${database}/backup-executions`
    expect(await tenant.owner.ask('POST', path)).toMatchObject({
      status: 409,
      body: { code: 'quota_exceeded', limit: 'max_backup_gib', allowed: 0 },
    })
    const { body } = await databases.schedule(database, { frequency: '0 3 1 1 *' })
    const backup = String(body['id'])
    await Backup.updateOne({ _id: backup, tenant_id: tenant.id }, { $set: { next_at: new Date() } })
    const [missed] = await eventually(async () => {
      const all = await databases.executionsOf(database, backup)
      return all.length > 0 && all
    })
    expect(missed).toMatchObject({
      status: 'skipped',
      reason: expect.stringContaining('max_backup_gib is 0'),
    })
    expect(await databases.deleteSchedule(database, backup)).toMatchObject({ status: 204 })
  })

  test('outlasts a bucket that is away for a moment, and fails with the reason if it is gone', async () => {
    const target = await makeTarget('away')
    await s3.stop()
    const { id, operation } = await databases.backUp(database, { target_id: target })
    // Noted just before the first attempt to write it.
    await eventually(() => UnwantedBlob.exists({ target_id: target }))
    await s3.start()
    await operation.success()
    expect(await databases.execution(id)).toMatchObject({ status: 'succeeded' })

    await s3.removeBucket('away')
    const failing = await databases.backUp(database, { target_id: target })
    await failing.operation.end()
    const reason = 'The backup target failed: There is no such bucket'
    expect(await databases.execution(failing.id)).toMatchObject({ status: 'failed', reason })
    await eventually(async () =>
      (await EventDelivery.find({ tenant_id: tenant.id }).lean()).some(
        ({ kind, message }) => kind === 'backup.failed' && message.includes(reason),
      ),
    )
  })
})

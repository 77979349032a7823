import { beforeAll, describe, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { Activity, noteActivity } from '../../models/activity.ts'
import { acceptContainer } from '../../models/compute/containers.ts'
import { findOperation } from '../../models/operations.ts'
import { requestCancel } from '../../models/operation-cancels.ts'
import { urlOfRoot } from '../support/database-root.ts'
import { eventually } from '../support/eventually.ts'
import { newContainer } from '../support/new-instances.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})

const made = async () => {
  const { id } = await tenant.containers.make({ start: false })
  const note = (kind: string, message = kind, data = {}) =>
    noteActivity({ tenant_id: tenant.id, resource_id: id, kind, message, data })
  return { id, note }
}

describe('an activity feed', () => {
  test('tells of the creation, and of operations that failed', async () => {
    const { id, operation } = await tenant.containers.create({ start: false })
    await operation.success()
    await (await tenant.containers.update(id, { image: 'localhost:1/none' })).operation.success()
    const starts = [await tenant.containers.start(id)]
    await starts[0]?.operation.end()
    starts.push(await tenant.containers.start(id))
    await starts[1]?.operation.end()
    expect(await tenant.containers.activity(id)).toEqual([
      {
        time: expect.any(String),
        first_time: expect.any(String),
        count: 1,
        kind: 'created',
        message: 'The container was created: it is stopped',
        data: { operation_id: operation.id },
      },
      {
        time: expect.any(String),
        first_time: expect.any(String),
        count: 2, // the same failure
        kind: 'failed',
        message: expect.stringMatching(/^The operation start failed: .*localhost:1\/none/),
        data: { verb: 'start', code: 'image_not_found', operation_id: starts[1]?.operation.id },
      },
    ])
  })

  test('tells of a creation that failed, and not of one that was cancelled', async () => {
    const failed = await tenant.containers.create({ image: 'localhost:1/none' })
    await failed.operation.end()
    expect(await tenant.containers.activity(failed.id)).toMatchObject([
      { kind: 'failed', data: { verb: 'create', code: 'image_not_found' } },
    ])
    const { operation } = await acceptContainer(
      { tenant_id: tenant.id, id: null },
      newContainer(`test-${newId()}`),
    )
    await requestCancel(tenant.id, operation._id)
    await eventually(async () => !(await findOperation(operation._id))?.open)
    expect(await Activity.countDocuments({ tenant_id: tenant.id, resource_id: operation.resource_id })).toBe(
      0,
    )
  })

  test('of a disk tells of its creation', async () => {
    const { id } = await tenant.disks.make()
    const { items } = await tenant.owner.get<{ items: object[] }>(`/api/v1/disks/${id}/activity`)
    expect(items).toMatchObject([{ kind: 'created', message: 'The disk was created: it is available' }])
  })

  test('has one entry for equal events in a row, with their number, the first and the last', async () => {
    const { id, note } = await made()
    for (let exit_code = 1; exit_code <= 30; exit_code++) await note('restarted', 'restarted', { exit_code })
    const [, entry, ...others] = await tenant.containers.activity(id)
    expect(others).toEqual([])
    expect(entry).toMatchObject({ kind: 'restarted', count: 30, data: { exit_code: 30 } })
    expect(String(entry?.['first_time']) < String(entry?.['time'])).toBe(true)

    await note('unhealthy')
    await note('restarted')
    const after = await tenant.containers.activity(id)
    expect(after.map(({ kind, count }) => [kind, count])).toEqual([
      ['created', 1],
      ['restarted', 30],
      ['unhealthy', 1],
      ['restarted', 1],
    ])
  })

  test('stays one entry for a run of equal events that many processes note at once', async () => {
    const { id, note } = await made()
    await note('restarted')
    await Promise.all(Array.from({ length: 20 }, () => note('restarted')))
    expect(await tenant.containers.activity(id)).toMatchObject([
      { kind: 'created' },
      { kind: 'restarted', count: 21 },
    ])
  })

  test('counts every event of many processes that note it at once', async () => {
    const { id, note } = await made()
    await Promise.all(Array.from({ length: 20 }, () => note('restarted')))
    const [, ...entries] = await tenant.containers.activity(id)
    expect(entries.reduce((sum, { count }) => sum + Number(count), 0)).toBe(20)
  })

  test('keeps its newest 500 entries, and ends with its resource', async () => {
    const { id, note } = await made()
    for (let n = 1; n <= 510; n++) await note('changed', `change ${n}`)
    const feed = { tenant_id: tenant.id, resource_id: id }
    expect(await Activity.countDocuments(feed)).toBe(500)
    expect((await tenant.containers.activity(id))[0]).toMatchObject({ message: 'change 11' })
    expect(await Activity.countDocuments({ ...feed, message: 'change 510' })).toBe(1)
    await (await tenant.containers.delete(id)).operation.success()
    expect(await Activity.countDocuments(feed)).toBe(0)
  })

  test('loses its entries after their lifetime', async () => {
    const indexes = await Activity.collection.indexes()
    const lifetimeSec = Number(indexes.find(({ name }) => name === 'time_1')?.['expireAfterSeconds'])
    const { id, note } = await made()
    const feed = { tenant_id: tenant.id, resource_id: id }
    const minute = 60_000
    for (const [message, agedMs] of [
      ['gone', lifetimeSec * 1000 + minute],
      ['kept', lifetimeSec * 1000 - 60 * minute],
    ] as const) {
      await note('changed', message)
      await Activity.updateOne({ ...feed, message }, { time: new Date(Date.now() - agedMs) })
    }
    // MongoDB looks once a minute by default.
    await lookingEverySec(1, () =>
      eventually(async () => !(await Activity.exists({ ...feed, message: 'gone' }))),
    )
    expect((await tenant.containers.activity(id)).map(({ message }) => message)).toEqual([
      'kept',
      expect.stringMatching(/was created/),
    ])
  })
})

/** Has MongoDB look for what has had its lifetime so often. */
async function lookingEverySec(sec: number, work: () => Promise<unknown>): Promise<void> {
  const root = await new mongoose.mongo.MongoClient(urlOfRoot('admin')).connect()
  const set = (ttlMonitorSleepSecs: number) => root.db().command({ setParameter: 1, ttlMonitorSleepSecs })
  const { was } = await set(sec)
  try {
    await work()
  } finally {
    await set(Number(was))
    await root.close()
  }
}

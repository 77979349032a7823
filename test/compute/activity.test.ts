import { beforeAll, describe, expect, test } from '@jest/globals'
import { Activity, noteActivity } from '../../models/activity.ts'
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
  test('has one entry for equal events in a row, with their number, the first and the last', async () => {
    const { id, note } = await made()
    for (let exit_code = 1; exit_code <= 30; exit_code++) await note('restarted', 'restarted', { exit_code })
    const [entry, ...others] = await tenant.containers.activity(id)
    expect(others).toEqual([])
    expect(entry).toMatchObject({ kind: 'restarted', count: 30, data: { exit_code: 30 } })
    expect(String(entry?.['first_time']) < String(entry?.['time'])).toBe(true)

    await note('unhealthy')
    await note('restarted')
    const after = await tenant.containers.activity(id)
    expect(after.map(({ kind, count }) => [kind, count])).toEqual([
      ['restarted', 30],
      ['unhealthy', 1],
      ['restarted', 1],
    ])
  })

  test('stays one entry for a run of equal events that many processes note at once', async () => {
    const { id, note } = await made()
    await note('restarted')
    await Promise.all(Array.from({ length: 20 }, () => note('restarted')))
    expect(await tenant.containers.activity(id)).toMatchObject([{ kind: 'restarted', count: 21 }])
  })

  test('counts every event of many processes that note it at once', async () => {
    const { id, note } = await made()
    await Promise.all(Array.from({ length: 20 }, () => note('restarted')))
    const entries = await tenant.containers.activity(id)
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
})

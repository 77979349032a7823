import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import type { InstanceSample } from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { Host } from '../../models/compute/hosts.ts'
import { records, type SampleDocument } from '../../models/compute/samples.ts'
import { enrolled } from '../../worker/host/enrolment.ts'
import { makeInternalApi } from '../../worker/host/internal-api.ts'
import { type ContainerBody, Operation, shell } from '../support/client.ts'
import { engine } from '../support/engine.ts'
import { describeHosts } from '../support/describe-hosts.ts'
import { eventually } from '../support/eventually.ts'
import { exchange } from '../support/exchange.ts'
import { platform, startAll } from '../support/platform.ts'
import { insertContainers, removeRows } from '../support/rows.ts'
import { facts, layout } from '../support/stack.ts'
import { makeOperator, makeTenant, type TestTenant } from '../support/tenants.ts'

// The usage of a container: measured on its host, stored, and returned as series.

type Points = [time: string, value: number][]
interface Metrics {
  step_sec: number
  series: { name: string; unit: string; points: Points }[]
}

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})

const pathOf = (id: string, query = ''): string => `/api/v1/containers/${id}/metrics${query}`
async function metrics(id: string, query: Record<string, string | number> = {}) {
  const search = Object.entries(query).map(([name, value]) => `${name}=${value}`)
  const { step_sec, series } = await tenant.owner.get<Metrics>(pathOf(id, `?${search.join('&')}`))
  const of = (name: string): Points => series.find((one) => one.name === name)?.points ?? []
  const values = (name: string): number[] => of(name).map(([, value]) => value)
  return { step_sec, series, of, values, sum: (name: string) => values(name).reduce((a, b) => a + b, 0) }
}

describe('a busy container', () => {
  afterAll(startAll)
  const bytes = 1_000_000
  let container: ContainerBody

  /** Sends the container bytes, which it returns. */
  async function talk(): Promise<void> {
    const { ports } = await tenant.containers.get(container.id)
    const [{ host_address, host_port } = { host_address: '', host_port: 0 }] = ports
    await eventually(async () => (await exchange(host_address, host_port, bytes)) >= bytes)
  }

  beforeAll(async () => {
    const busy = 'x=$(head -c 4194304 /dev/zero | tr "\\0" x); while :; do :; done'
    const serve = `while :; do head -c ${bytes} /dev/zero | nc -l -p 80 >/dev/null; done`
    container = await tenant.containers.make(
      shell(`(${serve}) & ${busy}`, { cpu_cores: 0.2, memory_mib: 64, ports: [{ container_port: 80 }] }),
    )
    await talk()
  })

  test('shows cores within its limit, memory, and network bytes', async () => {
    const seen = await eventually(async () => {
      const now = await metrics(container.id, { step_sec: 10 })
      return now.values('cpu_cores_used').length >= 3 && now.sum('net_tx_bytes') > bytes && now
    })
    expect(seen.series.map(({ name, unit }) => `${name} ${unit}`)).toEqual([
      'cpu_cores_used cores',
      'memory_mib_used MiB',
      'net_rx_bytes bytes',
      'net_tx_bytes bytes',
      'disk_read_bytes bytes',
      'disk_write_bytes bytes',
    ])
    const cores = seen.values('cpu_cores_used').slice(1) // its first value is above its limit
    for (const value of cores) {
      expect(value).toBeGreaterThan(0) // a busy machine gives less than the limit
      expect(value).toBeLessThan(0.3)
    }
    for (const value of seen.values('memory_mib_used').slice(1)) {
      expect(value).toBeGreaterThan(4)
      expect(value).toBeLessThan(64)
    }
    expect(seen.sum('net_rx_bytes')).toBeGreaterThan(0)
  })

  test('loses no usage in a restart, and no value is negative', async () => {
    const before = await metrics(container.id, { step_sec: 10 })
    const { started_at } = container
    await engine.kill(container.id)
    await eventually(async () => {
      const now = await tenant.containers.get(container.id)
      return now.status === 'running' && !now.operation_id && now.started_at !== started_at
    })
    await talk()
    const after = await eventually(async () => {
      const now = await metrics(container.id, { step_sec: 10 })
      return now.sum('net_tx_bytes') > before.sum('net_tx_bytes') + bytes && now
    })
    expect(Math.min(...after.series.flatMap(({ name }) => after.values(name)))).toBeGreaterThanOrEqual(0)
    expect(Math.max(...after.values('cpu_cores_used').slice(2))).toBeLessThan(2)
    const byMinute = await records.byMinute.model.countDocuments({
      'meta.tenant_id': tenant.id,
      'meta.instance_id': container.id,
    })
    expect(byMinute).toBeGreaterThanOrEqual(2) // the first of each run
  })

  test('loses no usage while its host does not report', async () => {
    await eventually(
      async () => (await metrics(container.id, { step_sec: 10 })).sum('net_tx_bytes') > 2 * bytes,
    )
    const before = await metrics(container.id, { step_sec: 10 })
    await platform.kill('host')
    await talk()
    await platform.start('host')
    const after = await eventually(async () => {
      const now = await metrics(container.id, { step_sec: 10 })
      return now.sum('net_tx_bytes') > before.sum('net_tx_bytes') + bytes && now
    })
    expect(after.sum('net_tx_bytes')).toBeLessThan(before.sum('net_tx_bytes') + 2 * bytes)
  })

  describeHosts('a sample from another host', () => {
    test('is ignored', async () => {
      const other = await enrolled(join(layout.state, 'host-2'), () =>
        Promise.reject(new Error('enrolled by now')),
      )
      expect(await Host.findById(other.hostId).lean()).not.toBeNull()
      const time = new Date().toISOString()
      const sample: InstanceSample = {
        id: container.id,
        time,
        started_at: time,
        by_minute: true,
        cpu_ms: 1,
        memory_bytes: 666,
        net_rx_bytes: 1,
        net_tx_bytes: 1,
        disk_read_bytes: 1,
        disk_write_bytes: 1,
      }
      await makeInternalApi(facts().api_url, other).samples({ samples: [sample, { ...sample, id: newId() }] })
      for (const { model } of Object.values(records)) {
        expect(await model.collection.countDocuments({ memory_bytes: 666 })).toBe(0)
      }
    })
  })
})

/** Expects equal values, except for the step with the restart in it and the end of the record. */
function expectEven(values: number[], value: number, but: number): void {
  expect(values.filter((other) => Math.abs(other - value) > value / 1000).length).toBeLessThanOrEqual(but)
}

describe('the record', () => {
  const nowMs = Math.floor(Date.now() / 60_000) * 60_000
  const daySec = 86_400
  const ago = (sec: number): string => new Date(nowMs - sec * 1000).toISOString()
  let id: string

  /** Half a core, 1,000 bytes in 10 s and 32 MiB; started a week ago and again half a day ago. */
  const restartedSec = daySec / 2 + 5
  function rowAt(sec: number): Omit<SampleDocument, 'meta'> {
    const startedSec = sec > restartedSec ? 7 * daySec : restartedSec
    const ranSec = startedSec - sec
    return {
      time: new Date(nowMs - sec * 1000),
      started_at: new Date(nowMs - startedSec * 1000),
      cpu_ms: ranSec * 500,
      memory_bytes: 32 * 1024 ** 2,
      net_rx_bytes: ranSec * 100,
      net_tx_bytes: 0,
      disk_read_bytes: 0,
      disk_write_bytes: 0,
    }
  }
  const insert = async (record: keyof typeof records, fromSec: number): Promise<void> => {
    const meta = { tenant_id: tenant.id, instance_id: id }
    const { model, everyMs } = records[record]
    const count = Math.floor((fromSec * 1000) / everyMs)
    const rows = Array.from({ length: count }, (_, i) => ({ meta, ...rowAt((i * everyMs) / 1000) }))
    await model.collection.insertMany(rows)
  }

  beforeAll(async () => {
    tenant = await makeTenant()
    id = newId()
    const at = new Date()
    await insertContainers(tenant.id, [{ _id: id, name: 'measured', created_at: at, updated_at: at }])
    await insert('raw', daySec)
    await insert('byMinute', 3 * daySec)
  })
  afterAll(removeRows)

  test.each([
    ['an hour by default, from raw rows', {}, 30, 120],
    ['24 hours', { from: ago(daySec), to: ago(0) }, 300, 288],
    ['24 hours by minute', { from: ago(daySec), to: ago(0), step_sec: 60 }, 60, 1_440],
    ['4 hours by 10 s', { from: ago(4 * 3_600), to: ago(0), step_sec: 10 }, 10, 1_440],
    ['4 hours of yesterday', { from: ago(18 * 3_600), to: ago(14 * 3_600), step_sec: 30 }, 30, 480],
    ['two days, when the record is by minute', { from: ago(2 * daySec), to: ago(0) }, 900, 192],
    ['an hour of the day before', { from: ago(2 * daySec), to: ago(2 * daySec - 3_600) }, 60, 60],
  ] as const)('answers %s', async (_, query, step_sec, points) => {
    const answer = await metrics(id, query)
    expect(answer.step_sec).toBe(step_sec)
    const count = answer.of('cpu_cores_used').length
    // Nothing is recorded after `nowMs`.
    const without = 'to' in query ? 0 : (Date.now() - nowMs) / (step_sec * 1000)
    expect(Math.abs(count - (points - without))).toBeLessThanOrEqual(3)
    expectEven(answer.values('cpu_cores_used'), 0.5, 3)
    expectEven(answer.values('memory_mib_used'), 32, 0)
    expectEven(answer.values('net_rx_bytes'), step_sec * 100, 3)
    const all = answer.sum('net_rx_bytes') / (count * step_sec * 100)
    expect(all).toBeGreaterThan(0.97)
    expect(all).toBeLessThanOrEqual(1.01)
    const times = answer.of('cpu_cores_used').map(([time]) => Date.parse(time))
    for (const time of times) expect(time % (step_sec * 1000)).toBe(0)
    expect(times).toEqual(times.toSorted((a, b) => a - b))
  })

  test('is unchanged when rows were written twice', async () => {
    const query = { from: ago(daySec), to: ago(0) }
    const before = await metrics(id, query)
    await insert('byMinute', daySec)
    expect(await metrics(id, query).then(({ series }) => series)).toEqual(before.series)
  })

  test('is empty where nothing was measured', async () => {
    const { series } = await metrics(id, { from: ago(14 * daySec), to: ago(10 * daySec) })
    expect(series.map(({ points }) => points)).toEqual(Array.from({ length: 6 }, () => []))
  })

  test.each([
    ['from', 'from=yesterday'],
    ['from', `from=${ago(0)}&to=${ago(60)}`],
    ['from', `from=${ago(60)}&to=${ago(60)}`],
    ['step_sec', 'step_sec=0'],
    ['step_sec', 'step_sec=15'],
    ['step_sec', 'step_sec=100000'],
    ['step_sec', `from=${ago(daySec)}&step_sec=10`],
    ['step_sec', `from=${ago(3 * daySec)}&to=${ago(3 * daySec - 3_600)}&step_sec=30`],
    ['from', 'from=0001-01-01T00:00:00Z'],
    ['tail', 'tail=5'],
  ])('refuses %s in ?%s', async (pointer, query) => {
    const answer = await tenant.owner.ask('GET', pathOf(id, `?${query}`))
    expect(answer).toMatchObject({ status: 400, body: { code: 'invalid_input' } })
    expect(answer.body['errors']).toEqual([expect.objectContaining({ pointer: `/${pointer}` })])
  })

  test('is kept for a day, and by minute for 15 days', async () => {
    const listed = await mongoose.connection.db?.listCollections({ type: 'timeseries' }).toArray()
    const kept = listed?.map((one) => [one.name, 'options' in one && one.options?.['expireAfterSeconds']])
    expect(Object.fromEntries(kept ?? [])).toEqual({
      samples: daySec,
      samples_by_minute: 15 * daySec,
      load_balancer_samples: daySec,
      load_balancer_samples_by_minute: 15 * daySec,
      database_samples: 15 * daySec,
    })
  })

  test('is never queried without its tenant', async () => {
    const { model } = records.raw
    await expect(model.countDocuments({ 'meta.instance_id': id })).rejects.toThrow('without tenant_id')
    await expect(model.aggregate([{ $match: { tenant_id: tenant.id } }])).rejects.toThrow('without tenant_id')
  })

  test('is deleted with its tenant, and no other is', async () => {
    const [gone, other] = [await makeTenant(), await makeTenant()]
    for (const { model } of Object.values(records)) {
      const rows = [gone, other].map((of) => ({
        meta: { tenant_id: of.id, instance_id: newId() },
        ...rowAt(60),
      }))
      await model.collection.insertMany(rows)
    }
    const operator = await makeOperator()
    const answer = await operator.ask('DELETE', `/api/v1/platform/tenants/${gone.id}`)
    await new Operation(operator, answer.headers.get('operation-location') ?? '').success()
    for (const { model } of Object.values(records)) {
      expect(await model.countDocuments({ 'meta.tenant_id': gone.id })).toBe(0)
      expect(await model.countDocuments({ 'meta.tenant_id': other.id })).toBe(1)
    }
  })
})

import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { processesWith } from '../../drivers/system/programs.ts'
import { newId } from '../../lib/ids.ts'
import type { RouteCounters } from '../../lib/load-balancer-protocol.ts'
import { counterRecords, type CountersDocument } from '../../models/network/load-balancer-samples.ts'
import { servedBy } from '../../models/network/load-balancer-usage.ts'
import { metricsPort } from '../../script/lib/roles.ts'
import { enrolled } from '../../worker/host/enrolment.ts'
import { makeInternalApi } from '../../worker/host/internal-api.ts'
import { urlOf } from '../support/balanced.ts'
import { describeHosts, first, second } from '../support/describe-hosts.ts'
import { eventually } from '../support/eventually.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { platform } from '../support/platform.ts'
import { facts, layout } from '../support/stack.ts'
import { makeServed, send, type Served } from '../support/served.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// What load balancers serve: counted from their access logs, sampled on their hosts, and returned as series.

let tenant: TestTenant
let subnet: string
beforeAll(async () => {
  tenant = await makeTenant({ max_vpcs: 100 })
  subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
})

async function metrics(id: string, query = '?step_sec=10') {
  const { step_sec, series } = await tenant.owner.loadBalancers.metrics(id, query)
  const of = (name: string, target: string | null = null) =>
    series.find((one) => one.name === name && one.target_id === target)?.points ?? []
  const values = (name: string, target: string | null = null) => of(name, target).map(([, value]) => value)
  const sum = (name: string, target: string | null = null) =>
    values(name, target).reduce((all, value) => all + value, 0)
  return { step_sec, series, of, values, sum }
}

/** The metrics when they have that many requests in all. */
const counted = (id: string, requests: number, query?: string) =>
  eventually(async () => {
    const now = await metrics(id, query)
    return now.sum('requests') >= requests && now
  })

/** Sends so many requests, and returns how many. */
async function sendTo(url: string, path: string, count: number): Promise<number> {
  for (let sent = 0; sent < count; sent++) await send(url, path)
  return count
}

/** How many requests its log has, which includes those that found out whether it is ready. */
const logged = async (id: string): Promise<number> => (await tenant.owner.loadBalancers.logs(id)).length

/** The metrics of the first host, as Prometheus reads them. */
const scrape = async (): Promise<string> =>
  (await fetch(`http://127.0.0.1:${metricsPort(layout, 'host', 0)}/metrics`)).text()

/** The sum of the series that begin so. */
const sumIn = (text: string, start: string): number =>
  text
    .split('\n')
    .filter((line) => line.startsWith(start))
    .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' ') + 1)), 0)

describe('a load balancer', () => {
  let served: Served
  let url: string
  beforeAll(async () => {
    served = await makeServed(tenant, subnet)
    url = urlOf(served.lb)
  })

  test('shows the requests that were made, by class, route and target', async () => {
    const { lb, route } = served
    const dead = await tenant.owner.loadBalancers.addRoute(lb.id, {
      path_match: '/dead',
      targets: [{ address: '10.0.0.250' }],
    })
    await eventually(async () => (await send(url, '/dead')) === 503)
    await sendTo(url, '/in', 7)
    await sendTo(url, '/in/nothing', 5)
    await sendTo(url, '/dead', 2)
    // The last ones, so all others are logged when these are.
    await sendTo(url, '/nowhere', 3)
    const lines = await eventually(async () => {
      const all = await tenant.owner.loadBalancers.logs(lb.id)
      return all.filter(({ path }) => path === '/nowhere').length === 3 && all
    })
    const made = (of: (line: (typeof lines)[number]) => boolean): number => lines.filter(of).length
    const all = await counted(lb.id, lines.length)
    expect(all.series.map(({ name, unit }) => `${name} ${unit}`)).toEqual([
      'requests requests',
      'responses_2xx requests',
      'responses_3xx requests',
      'responses_4xx requests',
      'responses_5xx requests',
      'responses_other requests',
      'bytes_in bytes',
      'bytes_out bytes',
      'connections connections',
      'latency_p50 ms',
      'latency_p95 ms',
      'latency_p99 ms',
    ])
    expect(all.sum('requests')).toBe(lines.length)
    expect(all.sum('responses_2xx')).toBe(made(({ status }) => status === 200))
    expect(all.sum('responses_5xx')).toBe(made(({ status }) => status === 503))
    expect(all.sum('bytes_in')).toBe(lines.reduce((sum, line) => sum + Number(line['bytes_in']), 0))
    expect(all.sum('bytes_out')).toBe(lines.reduce((sum, line) => sum + Number(line['bytes_out']), 0))
    expect(Math.max(...all.values('latency_p99'))).toBeGreaterThanOrEqual(
      Math.max(...all.values('latency_p50')),
    )

    const [target] = route.targets
    const ofRoute = await metrics(lb.id, `?step_sec=10&route_id=${route.id}`)
    for (const id of [null, target?.id ?? '']) {
      const reached = made((line) => line.route_id === route.id && (id === null || line.target_id === id))
      expect(ofRoute.sum('requests', id)).toBe(reached)
      expect(ofRoute.sum('responses_4xx', id)).toBe(made(({ path }) => path === '/in/nothing'))
      expect(ofRoute.values('requests', id).length).toBe(all.values('requests').length)
    }
    const ofDead = await metrics(lb.id, `?step_sec=10&route_id=${dead.id}`)
    expect(ofDead.sum('requests')).toBe(made(({ route_id }) => route_id === dead.id))
    expect(ofDead.sum('responses_5xx')).toBe(ofDead.sum('requests'))
  })

  test('loses no request, and none counts twice, when its proxy and its host’s worker are killed', async () => {
    const { lb, route } = served
    const was = await eventually(async () => {
      const [now, lines] = [await metrics(lb.id), await logged(lb.id)]
      return now.sum('requests') === lines && lines
    })
    let sent = await sendTo(url, '/in', 10)
    // The proxy writes a line just after the response: without this, the kill could take the last one.
    await eventually(async () => (await logged(lb.id)) === was + sent)
    for (const { pid, args } of await processesWith(`/${lb.id}/`))
      if (args[0]?.endsWith('haproxy')) process.kill(pid, 'SIGKILL')
    await eventually(async () => {
      const status = await send(url, '/in').catch(() => 0)
      if (status) sent++
      return status === 200
    })
    await platform.kill('host')
    sent += await sendTo(url, '/in', 10)
    await platform.start('host')
    // A reload.
    await tenant.owner.loadBalancers.addRoute(lb.id, {
      path_match: '/more',
      redirect_status: 302,
      redirect_url: '/in',
    })
    await eventually(async () => {
      sent++
      return (await send(url, '/more')) !== 404
    })
    await eventually(async () => (await logged(lb.id)) === was + sent)
    const now = await counted(lb.id, was + sent)
    expect(now.sum('requests')).toBe(was + sent)
    for (const { points } of now.series)
      for (const [, value] of points) expect(value).toBeGreaterThanOrEqual(0)
    const minutes = await eventually(async () => {
      const found = await metrics(lb.id, '?step_sec=60')
      return found.sum('requests') > 0 && found
    })
    expect(minutes.sum('requests')).toBeLessThanOrEqual(was + sent)
    expect((await metrics(lb.id, `?step_sec=10&route_id=${route.id}`)).sum('requests')).toBeLessThan(
      was + sent,
    )
  })

  test('has no metrics of a route that is not its own', async () => {
    const { lb: other, route } = await makeServed(tenant, subnet)
    expect(other.id).not.toBe(served.lb.id)
    const path = `/api/v1/load-balancers/${served.lb.id}/metrics?route_id=${route.id}`
    expect(await tenant.owner.ask('GET', path)).toMatchObject({ status: 404 })
  })

  test('gives a Prometheus its counters, by route and target', async () => {
    const { lb, route } = served
    const lines = await tenant.owner.loadBalancers.logs(lb.id)
    const path = `/api/v1/load-balancers/${lb.id}/metrics/prometheus`
    const read = async () => {
      const { status, headers, body } = await tenant.owner.ask('GET', path)
      expect([status, headers.get('content-type')]).toEqual([
        200,
        expect.stringMatching(/^text\/plain; version=0/),
      ])
      return body['text'] as string
    }
    const text = await eventually(async () => {
      const now = await read()
      return sumIn(now, 'keelson_load_balancer_requests_total{') === lines.length && now
    })
    const its = lines.filter(({ route_id }) => route_id === route.id)
    const labels = `host_id="${lb.endpoints[0]?.host_id}",route_id="${route.id}",route="${route['name'] as string}"`
    expect(sumIn(text, `keelson_load_balancer_route_requests_total{${labels},`)).toBe(its.length)
    const target = `${labels},target_id="${route.targets[0]?.id}"`
    expect(sumIn(text, `keelson_load_balancer_target_requests_total{${target},response="4xx"}`)).toBe(
      its.filter(({ status, target_id }) => status === 404 && target_id !== null).length,
    )
    expect(sumIn(text, `keelson_load_balancer_target_bytes_total{${target},direction="out"}`)).toBe(
      its.reduce((sum, line) => sum + (line.target_id === null ? 0 : Number(line['bytes_out'])), 0),
    )
  })

  test('is counted in its host’s metrics for Prometheus, without its name', async () => {
    const requests = 'keelson_load_balancer_requests_total{response="4xx"'
    const before = sumIn(await scrape(), requests)
    await sendTo(url, '/in/nothing', 4)
    const text = await eventually(async () => {
      const now = await scrape()
      return sumIn(now, requests) >= before + 4 && now
    })
    expect(sumIn(text, 'keelson_load_balancers{state="running"')).toBeGreaterThan(0)
    expect(sumIn(text, 'keelson_load_balancer_bytes_total{direction="out"')).toBeGreaterThan(0)
    expect(text).not.toContain(served.lb.id)
    expect(text).not.toContain(tenant.id)
  })
})

/** The same count every 10 s, by the second. */
const every10 = (from: number, to: number, requests: number): Record<number, number> =>
  Object.fromEntries(Array.from({ length: (to - from) / 10 + 1 }, (_, i) => [from + i * 10, requests]))

describe('the record of a load balancer', () => {
  const [minuteMs, hourMs] = [60_000, 3_600_000]
  /** The start of a whole hour, some hours ago. */
  const began = Math.floor(Date.now() / hourMs - 5) * hourMs
  const [route, target] = [newId(), newId()]
  type Of = Partial<CountersDocument['meta']>

  /** Inserts rows with this many requests, by the second after `began`. */
  async function insert(scope: Of, requests: Record<number, number>, stay = -10 * 3600): Promise<void> {
    const rows = Object.entries(requests).map(([sec, count]) => ({
      meta: { tenant_id: tenant.id, host_id: 'host', route_id: null, target_id: null, ...scope },
      time: new Date(began + Number(sec) * 1000),
      started_at: new Date(began + stay * 1000),
      ...Object.fromEntries(
        ['2xx', '3xx', '4xx', '5xx', 'other'].map((name) => [
          `responses_${name}`,
          name === '2xx' ? count : 0,
        ]),
      ),
      requests: count,
      connections: 2,
      bytes_in: count,
      bytes_out: count,
      p50_ms: count,
      p95_ms: null,
      p99_ms: null,
    }))
    await counterRecords.raw.model.collection.insertMany(rows)
  }

  const served = async (load_balancer_id: string, routeId: string | null) => {
    const range = { fromMs: began, toMs: began + 5 * minuteMs, stepMs: minuteMs }
    const all = await servedBy({ tenant_id: tenant.id, load_balancer_id }, routeId, 'raw', range)
    return (target_id: string | null) =>
      all
        .find((one) => one.target_id === target_id)
        ?.steps.map(({ time, counted: of }) => [(time.getTime() - began) / minuteMs, of?.requests])
  }

  test('counts a row from the last one before, also if that is an hour old', async () => {
    const load_balancer_id = newId()
    await insert({ load_balancer_id }, every10(-3600, 300, 0))
    await insert({ load_balancer_id, route_id: route }, { [-3500]: 100, 70: 103, 80: 103, 250: 110 })
    const of = await served(load_balancer_id, route)
    expect(of(null)).toEqual([
      [0, 0],
      [1, 3],
      [2, 0],
      [3, 0],
      [4, 7],
    ])
  })

  test('counts a new target from 0, and nothing of what was before a silence', async () => {
    const load_balancer_id = newId()
    await insert({ load_balancer_id }, every10(70, 300, 50))
    await insert({ load_balancer_id, route_id: route }, every10(70, 300, 50))
    await insert({ load_balancer_id, route_id: route, target_id: target }, { 200: 4, 210: 9 })
    expect((await served(load_balancer_id, null))(null)).toEqual([
      [1, undefined],
      [2, 0],
      [3, 0],
      [4, 0],
    ])
    const of = await served(load_balancer_id, route)
    expect(of(null)?.[0]).toEqual([1, undefined])
    expect(of(target)).toEqual([
      [1, 0],
      [2, 0],
      [3, 9],
      [4, 0],
    ])
  })

  test('adds up the replicas, and counts from 0 after a move back to a host', async () => {
    const load_balancer_id = newId()
    await insert({ load_balancer_id }, { ...every10(-60, 60, 10), ...every10(70, 120, 15) })
    await insert({ load_balancer_id }, every10(190, 300, 6), 180)
    await insert({ load_balancer_id, host_id: 'other' }, { ...every10(-60, 60, 1), ...every10(70, 300, 3) })
    expect((await served(load_balancer_id, null))(null)).toEqual([
      [0, 0],
      [1, 5 + 2],
      [2, 0],
      [3, 6],
      [4, 0],
    ])
    const all = await servedBy({ tenant_id: tenant.id, load_balancer_id }, null, 'raw', {
      fromMs: began,
      toMs: began + minuteMs,
      stepMs: minuteMs,
    })
    expect(all[0]?.steps).toMatchObject([{ connections: 4, p50_ms: 10, p95_ms: null }])
  })
})

describeHosts('with further hosts, a load balancer', () => {
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })

  test('shows the sum over its replicas, also after a move', async () => {
    await open([first, second])
    const { lb, route } = await makeServed(tenant, subnet, { replicas: 2 })
    const query = `?step_sec=10&route_id=${route.id}`
    await sendTo(urlOf(lb, 80, 0), '/in', 6)
    await sendTo(urlOf(lb, 80, 1), '/in', 9)
    // The last one of each replica, so all others are logged when these are.
    for (const index of [0, 1]) await send(urlOf(lb, 80, index), '/in/nothing')
    const lines = await eventually(async () => {
      const found = (await tenant.owner.loadBalancers.logs(lb.id)).filter(
        ({ route_id }) => route_id === route.id,
      )
      return found.filter(({ path }) => path === '/in/nothing').length === 2 && found
    })
    expect((await counted(lb.id, lines.length, query)).sum('requests')).toBe(lines.length)

    await (await tenant.owner.loadBalancers.update(lb.id, { replicas: 1 })).operation.success()
    const now = await tenant.owner.loadBalancers.get(lb.id)
    await sendTo(urlOf(now), '/in', 5)
    expect((await counted(lb.id, lines.length + 5, query)).sum('requests')).toBe(lines.length + 5)
  })

  test('takes no samples from a host that does not run it', async () => {
    await open([first])
    const { lb } = await makeServed(tenant, subnet)
    const other = await enrolled(join(layout.state, 'host-2'), () =>
      Promise.reject(new Error('enrolled by now')),
    )
    const time = new Date().toISOString()
    const row: RouteCounters = {
      route_id: null,
      target_id: null,
      requests: 666_666,
      responses: { '2xx': 666_666, '3xx': 0, '4xx': 0, '5xx': 0, other: 0 },
      connections: 0,
      bytes_in: 0,
      bytes_out: 0,
      p50_ms: null,
      p95_ms: null,
      p99_ms: null,
      by_minute: true,
    }
    const samples = [{ id: lb.id, time, started_at: time, routes: [row] }]
    await makeInternalApi(facts().api_url, other).loadBalancerSamples({ samples })
    const { sum } = await counted(lb.id, 1)
    expect(sum('requests')).toBeLessThan(666_666)
  })
})

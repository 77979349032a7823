import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { Host } from '../../models/compute/hosts.ts'
import { urlOf } from '../support/balanced.ts'
import type { AccessBody } from '../support/clients/load-balancers.ts'
import { describeHosts, first, second } from '../support/describe-hosts.ts'
import { eventually } from '../support/eventually.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { archived, askArchive, piecesOf } from '../support/log-archive.ts'
import { followLog } from '../support/follow.ts'
import { platform } from '../support/platform.ts'
import { makeServed, send, type Served } from '../support/served.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// The access logs of load balancers: the newest lines, new lines as they come, and the archive.

let tenant: TestTenant
let subnet: string
beforeAll(async () => {
  tenant = await makeTenant({ max_vpcs: 100 })
  subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
})

const logs = (id: string, query = '') => tenant.owner.loadBalancers.logs(id, query)
const pathsIn = (lines: AccessBody[]): (string | null)[] => lines.map(({ path }) => path)
const isInOrder = (lines: AccessBody[]): boolean =>
  lines.every(({ time }, i) => i === 0 || (lines[i - 1]?.time ?? '') <= time)

/** The lines whose path begins so, when there are that many. */
const linesOf = (id: string, prefix: string, count: number) =>
  eventually(async () => {
    const lines = (await logs(id)).filter(({ path }) => path?.startsWith(prefix))
    return lines.length >= count && lines
  })

/** The complete archive: the lines whose path begins so. */
const archivedOf = async (id: string, prefix: string): Promise<AccessBody[]> =>
  (await archived(tenant.owner, id, 'load-balancers'))
    .map((line) => JSON.parse(line) as AccessBody)
    .filter(({ path }) => path?.startsWith(prefix))

const numbered = (prefix: string, count: number): string[] =>
  Array.from({ length: count }, (_, number) => `${prefix}${number}`)

async function sendAll(url: string, paths: string[]): Promise<void> {
  for (const path of paths) await send(url, path)
}

/** Follows the log, and collects its lines until `stop`. */
const follow = (id: string, query = '') =>
  followLog<AccessBody>(tenant.owner, `/api/v1/load-balancers/${id}/logs?follow=true${query}`)

describe('the access log of a load balancer', () => {
  let served: Served
  let url: string
  beforeAll(async () => {
    served = await makeServed(tenant, subnet)
    url = urlOf(served.lb)
  })

  test('has a line for each request, with its route, target, status, bytes and timings', async () => {
    const { lb, route } = served
    await send(url, '/in/first?secret=1')
    await send(url, '/other/first')
    const [line] = await linesOf(lb.id, '/in/first', 1)
    expect(line).toEqual({
      time: expect.stringMatching(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{9}Z$/),
      host_id: lb.endpoints[0]?.host_id,
      began_at: expect.stringMatching(/^\d{4}-.*Z$/),
      request_id: expect.stringMatching(/^[\da-f-]{36}$/),
      client: expect.stringMatching(/^[\d.]+$/),
      route_id: route.id,
      target_id: route.targets[0]?.id,
      method: 'GET',
      host: lb.endpoints[0]?.host_address,
      path: '/in/first',
      protocol: 'HTTP/1.1',
      status: 404,
      bytes_in: expect.any(Number),
      bytes_out: expect.any(Number),
      wait_ms: expect.any(Number),
      connect_ms: expect.any(Number),
      response_ms: expect.any(Number),
      total_ms: expect.any(Number),
      retries: 0,
      end: '--',
    })
    const [other] = await linesOf(lb.id, '/other/first', 1)
    expect(other).toMatchObject({ route_id: null, target_id: null, status: 404 })
  })

  test('gives the last lines, and those since a time', async () => {
    const { id } = served.lb
    await sendAll(url, numbered('/in/some', 5))
    const some = await linesOf(id, '/in/some', 5)
    expect(isInOrder(some)).toBe(true)
    expect(pathsIn(await logs(id, '?lines=2'))).toEqual(pathsIn(some.slice(-2)))
    expect(await logs(id, '?lines=0')).toEqual([])
    const since = encodeURIComponent(some[2]?.time ?? '')
    expect(pathsIn(await logs(id, `?since=${since}`))).toEqual(pathsIn(some.slice(2)))
    expect(pathsIn(await logs(id, `?since=${since}&lines=1`))).toEqual(pathsIn(some.slice(-1)))
    expect(await logs(id, '?since=2999-01-01T00:00:00Z')).toEqual([])
  })

  test.each(['lines=-1', 'since=yesterday', 'follow=perhaps', 'tail=5', 'timestamps=false'])(
    'refuses ?%s',
    async (query) => {
      const path = `/api/v1/load-balancers/${served.lb.id}/logs?${query}`
      expect(await tenant.owner.ask('GET', path)).toMatchObject({
        status: 400,
        body: { code: 'invalid_input' },
      })
    },
  )

  test('is followed by server-sent events with an id to continue from', async () => {
    const { id } = served.lb
    const wanted = numbered('/in/follow', 20)
    const following = await follow(id, '&lines=0')
    expect(following.type).toBe('text/event-stream')
    await sendAll(url, wanted)
    await eventually(() => following.lines.length >= wanted.length)
    await following.stop()
    expect(new Set(pathsIn(following.lines))).toEqual(new Set(wanted))
    expect(following.lines).toHaveLength(wanted.length)
    for (const { event, time } of following.lines) expect(event).toBe(time)

    const tenth = following.lines[9]
    const again = await follow(id, `&since=${encodeURIComponent(tenth?.time ?? '')}`)
    await eventually(() => again.lines.length >= wanted.length - 9)
    await again.stop()
    expect(pathsIn(again.lines)).toEqual(pathsIn(following.lines.slice(9)))
  })

  test('is nobody else’s', async () => {
    const other = await makeTenant()
    for (const what of ['logs', 'logs/archive', 'metrics', 'metrics/prometheus'])
      expect(await other.owner.ask('GET', `/api/v1/load-balancers/${served.lb.id}/${what}`)).toMatchObject({
        status: 404,
        body: { code: 'not_found' },
      })
  })

  test('has every line once when the host’s worker is killed while requests flow', async () => {
    const { id } = served.lb
    const back = new AbortController()
    const sending = (async () => {
      let number = 0
      for (; !back.signal.aborted || number < 200; number++) await send(url, `/in/kill${number}`)
      return number
    })()
    await linesOf(id, '/in/kill', 20)
    const following = await follow(id, '&lines=0')
    await platform.kill('host')
    await platform.start('host')
    back.abort()
    const count = await sending
    await linesOf(id, '/in/kill', count)
    const paths = pathsIn(await archivedOf(id, '/in/kill'))
    expect(paths).toHaveLength(count)
    expect(new Set(paths)).toEqual(new Set(numbered('/in/kill', count)))
    // The stream continues by itself.
    await send(url, '/in/afterwards')
    await eventually(() => pathsIn(following.lines).includes('/in/afterwards'))
    await following.stop()
  })

  test('moves to the archive beyond its cap', async () => {
    const { lb } = await makeServed(tenant, subnet, { log_cap_mib: 1 })
    const own = urlOf(lb)
    const long = `/in/${'x'.repeat(1900)}`
    const count = 1_000
    // The proxy's FIFO has room for some 250 of these lines, and the log's reader may be slow.
    for (let sent = 0; sent < count; sent += 100) {
      await sendAll(own, numbered(long, count).slice(sent, sent + 100))
      await eventually(async () => (await archivedOf(lb.id, long)).length >= sent + 100)
    }
    await eventually(async () => (await piecesOf(lb.id)).length > 0)
    await eventually(async () => (await archivedOf(lb.id, long)).length === count)
    expect(new Set(pathsIn(await archivedOf(lb.id, long)))).toEqual(new Set(numbered(long, count)))
    expect((await logs(lb.id)).length).toBeLessThan(count)

    await (await tenant.owner.loadBalancers.delete(lb.id)).operation.success()
    expect(await piecesOf(lb.id)).toEqual([])
  })
})

describeHosts('with further hosts, the access log', () => {
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })

  test('has the lines of both replicas in order, and keeps those of a replica that is dropped', async () => {
    await open([first, second])
    const { lb } = await makeServed(tenant, subnet, { replicas: 2 })
    for (const number of [0, 1, 2, 3, 4, 5]) await send(urlOf(lb, 80, number % 2), `/in/both${number}`)
    const lines = await linesOf(lb.id, '/in/both', 6)
    expect(isInOrder(lines)).toBe(true)
    for (const [index, { host_id }] of lb.endpoints.entries()) {
      const its = lines.filter((line) => line.host_id === host_id)
      expect(new Set(pathsIn(its))).toEqual(new Set([0, 2, 4].map((number) => `/in/both${number + index}`)))
    }
    expect(pathsIn(await logs(lb.id, '?lines=4'))).toEqual(pathsIn((await logs(lb.id)).slice(-4)))

    await (await tenant.owner.loadBalancers.update(lb.id, { replicas: 1 })).operation.success()
    const kept = await archivedOf(lb.id, '/in/both')
    expect(kept).toEqual(lines)
    expect(new Set((await logs(lb.id)).map(({ host_id }) => host_id)).size).toBe(1)
  })

  test('says which replica’s lines are missing while its host does not answer', async () => {
    await open([first, second])
    const { lb } = await makeServed(tenant, subnet, { replicas: 2 })
    const there = lb.endpoints.find(({ host_id }) => host_id === first.id)
    expect(there).toBeDefined()
    await platform.kill(second.roles.host)
    await sendAll(`http://${there?.host_address}:${there?.ports[0]?.host_port}`, ['/in/there'])
    await linesOf(lb.id, '/in/there', 1)
    const said = { host_id: second.id, missing: expect.stringContaining('does not answer') }
    const remarks = async (query: string): Promise<unknown[]> =>
      (await logs(lb.id, query)).filter((line) => 'missing' in line)
    expect(await remarks('')).toEqual([said])
    expect(await remarks('?lines=1')).toEqual([said])
    const following = await follow(lb.id)
    await eventually(() => following.lines.some(({ path }) => path === '/in/there'))
    expect(following.lines.filter((line) => 'missing' in line)).toEqual([{ event: '', ...said }])
    await following.stop()
    await platform.start(second.roles.host)
    await eventually(async () => (await remarks('')).length === 0)
  })

  test('is kept, and is followed, when the load balancer moves to another host', async () => {
    await open([first, second])
    const { lb } = await makeServed(tenant, subnet)
    const following = await follow(lb.id, '&lines=0')
    await sendAll(urlOf(lb), numbered('/in/move-a', 10))
    const followed = () => following.lines.filter(({ path }) => path?.startsWith('/in/move')).length
    await (await tenant.owner.loadBalancers.reschedule(lb.id)).operation.success()
    const now = await tenant.owner.loadBalancers.get(lb.id)
    await eventually(async () => (await send(urlOf(now), '/in')) === 200)
    await sendAll(urlOf(now), numbered('/in/move-b', 10))
    await linesOf(lb.id, '/in/move-b', 10)
    const kept = await archivedOf(lb.id, '/in/move')
    expect(isInOrder(kept)).toBe(true)
    expect(new Set(pathsIn(kept))).toEqual(
      new Set([...numbered('/in/move-a', 10), ...numbered('/in/move-b', 10)]),
    )
    expect(kept).toHaveLength(20)
    expect([...new Set(kept.map(({ host_id }) => host_id))]).toEqual([
      lb.endpoints[0]?.host_id,
      now.endpoints[0]?.host_id,
    ])
    await eventually(() => followed() >= 20)
    await following.stop()
  })

  test('says what is missing while a lost host is away, and has it when that host is back', async () => {
    await open([second])
    const { lb } = await makeServed(tenant, subnet)
    await sendAll(urlOf(lb), numbered('/in/lost', 10))
    await linesOf(lb.id, '/in/lost', 10)
    await platform.kill(second.roles.host)
    await eventually(async () => (await Host.findById(second.id).lean())?.unreachable_since)
    await open([first])
    await eventually(async () => {
      const { endpoints, operation_id } = await tenant.owner.loadBalancers.get(lb.id)
      return endpoints[0]?.host_id === first.id && endpoints[0].state === 'running' && !operation_id
    })
    const answer = await askArchive(tenant.owner, lb.id, { plural: 'load-balancers' })
    const missing: string[] = []
    for await (const line of answer.lines) if (line.includes('"missing"')) missing.push(line)
    expect(missing.map((line) => JSON.parse(line) as unknown)).toEqual([
      { host_id: second.id, missing: expect.stringContaining('does not answer') },
    ])
    expect(answer.complete()).toBe('false')

    await platform.start(second.roles.host)
    await eventually(async () => (await archivedOf(lb.id, '/in/lost')).length === 10)
    await eventually(async () => (await piecesOf(lb.id)).some(({ host_id }) => host_id === second.id))
    expect(new Set(pathsIn(await archivedOf(lb.id, '/in/lost')))).toEqual(new Set(numbered('/in/lost', 10)))
  })
})

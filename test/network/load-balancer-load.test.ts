import { availableParallelism } from 'node:os'
import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { processesWith } from '../../drivers/system/programs.ts'
import { nicOf, request, urlOf } from '../support/balanced.ts'
import { makeAuthority } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { isLong } from '../support/long.ts'
import { containerOf } from '../support/members.ts'
import { platform, startAll } from '../support/platform.ts'
import { type Sent, SteadyLoad } from '../support/steady-load.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeMember, makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// Changes and kills under a steady load: only requests that were in flight on what was killed may fail.

const { perSec, routeChanges, certificateChanges, betweenMs, leastMs } = isLong
  ? { perSec: 500, routeChanges: 50, certificateChanges: 5, betweenMs: 800, leastMs: 60_000 }
  : { perSec: 60, routeChanges: 6, certificateChanges: 1, betweenMs: 100, leastMs: 0 }

// A target needs the time to answer all requests; an engine refuses more processors than there are.
const cpu_cores = Math.min(2, availableParallelism())

let tenant: TestTenant
let subnet: string
let members: Member[]
beforeAll(async () => {
  tenant = await makeTenant()
  subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
  members = await Promise.all([1, 2, 3].map(() => makeMember(tenant, subnet, { cpu_cores })))
})
afterAll(async () => {
  await startAll()
  await removeTenants()
})

const ask = (method: string, path: string, body?: unknown) => tenant.owner.ask(method, `/api/v1${path}`, body)

const toMembers = (...some: (Member | undefined)[]) => ({
  targets: some.flatMap((one) => (one ? [{ nic_id: nicOf(one) }] : [])),
})

/** Something was killed at `from`, and was back at `to`. */
interface Outage {
  what: string
  from: number
  to: number
}

const wasInFlight = ({ at, ended }: Sent, outages: Outage[]): boolean =>
  outages.some(({ from, to }) => at <= to && ended >= from)

test('no request fails but those in flight on what was killed', async () => {
  const authority = await makeAuthority()
  const issue = async () => {
    const { cert, key } = await authority.issue(['shop.example'])
    return { certificate_pem: cert, private_key_pem: key }
  }
  const certificate = String(
    (await ask('POST', '/certificates', { name: 'shop', ...(await issue()) })).body['id'],
  )
  const lb = await tenant.owner.loadBalancers.make(subnet, {
    listeners: [
      { port: 80, protocol: 'http' },
      { port: 443, protocol: 'https', certificate_ids: [certificate] },
    ],
  })
  const [drained, dead, kept] = members
  const { id: route } = await tenant.owner.loadBalancers.addRoute(lb.id, {
    ...toMembers(drained, dead, kept),
    drain_timeout_sec: 5,
  })
  const urls = [urlOf(lb), urlOf(lb, 443)]
  const [url] = urls as [string]
  await eventually(async () => (await request(url)).status === 200)
  await eventually(async () => {
    const { targets } = await tenant.owner.loadBalancers.getRoute(lb.id, route)
    return targets.every(({ health_state }) => health_state === 'healthy')
  })

  const begun = Date.now()
  const load = new SteadyLoad([url, url, url, url, urls[1] ?? ''], perSec)
  const outages: Outage[] = []
  /**
   * Kills, and waits until a request that was sent afterwards is answered. It was back when the first of these was
   * answered: on a kept connection that broke, it was sent again later than its `at`.
   */
  async function outage(what: string, kill: () => Promise<unknown>): Promise<void> {
    const from = Date.now()
    await kill()
    const done = Date.now()
    await eventually(() => load.sent.some(({ at, status }) => at > done && status === 200))
    const answered = load.sent.filter(({ at, status }) => at > done && status === 200)
    outages.push({ what, from, to: Math.min(...answered.map(({ ended }) => ended)) })
  }

  for (let change = 0; change < routeChanges; change++) {
    const changes = { response_headers_add: { 'x-change': String(change) }, priority: 100 + change }
    expect((await tenant.owner.loadBalancers.changeRoute(lb.id, route, changes)).status).toBe(200)
    await delay(betweenMs)
  }
  for (let change = 0; change < certificateChanges; change++)
    expect((await ask('PUT', `/certificates/${certificate}`, await issue())).status).toBe(200)
  await eventually(async () => {
    const { headers } = await fetch(url)
    return headers.get('x-change') === String(routeChanges - 1)
  })

  await tenant.owner.loadBalancers.changeRoute(lb.id, route, toMembers(dead, kept))
  await eventually(async () => (await tenant.owner.loadBalancers.getRoute(lb.id, route)).targets.length === 2)
  await platform.kill('host')
  await delay(betweenMs)
  await platform.start('host')

  await outage('a target', async () => (await containerOf(dead as Member)).kill())
  await outage('HAProxy', async () => {
    // Those of a host that has just begun may be starting anew.
    const processes = await eventually(async () => {
      const all = await processesWith(`/${lb.id}/haproxy.cfg`)
      return all.length > 1 && all
    })
    for (const { pid } of processes) process.kill(pid, 'SIGKILL')
  })
  await delay(Math.max(betweenMs, begun + leastMs - Date.now()))

  const sent = await load.end()
  const failed = sent.filter(({ status }) => status !== 200)
  const excused = failed.filter((one) => wasInFlight(one, outages))
  const seconds = ((sent.at(-1)?.ended ?? 0) - (sent[0]?.at ?? 0)) / 1000
  console.info(
    `${sent.length} requests in ${seconds.toFixed(0)} s, ${excused.length} failed in flight on what was killed; ` +
      outages.map(({ what, from, to: back }) => `${what} was away for ${back - from} ms`).join('; '),
  )
  expect(failed.filter((one) => !excused.includes(one))).toEqual([])
})

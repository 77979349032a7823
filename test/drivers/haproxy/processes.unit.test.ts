import { Agent, createServer } from 'node:http'
import { once } from 'node:events'
import { rm } from 'node:fs/promises'
import { setTimeout as delay } from 'node:timers/promises'
import { expect, test } from '@jest/globals'
import { findMaster, reload } from '../../../drivers/haproxy/processes.ts'
import { statsOf } from '../../../drivers/haproxy/runtime.ts'
import { LoadBalancerHost } from '../../../drivers/haproxy/host.ts'
import type { LoadBalancerSpec, RouteSpec } from '../../../drivers/load-balancers.ts'
import { processesWith } from '../../../drivers/system/programs.ts'
import { newId } from '../../../lib/ids.ts'
import { eventually } from '../../support/eventually.ts'
import {
  anotherEngine,
  applied,
  ask,
  balancer,
  balancers,
  certificateFor,
  lastPort,
  noTarget,
  portOf,
  route,
  settings,
  target,
  targetAddresses,
  withLoadBalancers,
} from '../../support/load-balancers.ts'
import { isLong } from '../../support/long.ts'

const placeOf = (id: string) => new LoadBalancerHost(settings as never).placeOf(id)
const masterOf = async (id: string): Promise<number> => (await findMaster(placeOf(id))) ?? 0

/** Sends requests until aborted, so many per second; counts the statuses. */
async function load(port: number, perSec: number, signal: AbortSignal): Promise<Record<string, number>> {
  const agent = new Agent({ keepAlive: true, maxSockets: 20 })
  const seen: Record<string, number> = {}
  const note = (what: string): void => void (seen[what] = (seen[what] ?? 0) + 1)
  const under: Promise<void>[] = []
  const begun = Date.now()
  for (let sent = 0; !signal.aborted; sent++) {
    under.push(
      ask(port, `/load/${sent}`, { agent }).then(
        ({ status }) => note(String(status)),
        (error: Error) => note(error.message),
      ),
    )
    const ahead = (sent * 1000) / perSec - (Date.now() - begun)
    if (ahead > 0) await delay(ahead)
  }
  await Promise.all(under)
  agent.destroy()
  return seen
}

withLoadBalancers('a load balancer’s process', () => {
  test('loses no request while routes, weights, targets and certificates change', async () => {
    const targets = targetAddresses.map((address) => target({ address }))
    const certificates = [await certificateFor('a.test'), await certificateFor('b.test')]
    const main = route({ targets, priority: 900 })
    let spec: LoadBalancerSpec = balancer({ routes: [main] })
    await applied(spec)
    const port = await portOf(spec.id)
    const ending = new AbortController()
    const loaded = load(port, isLong ? 500 : 100, ending.signal)
    const changes = isLong ? 50 : 6
    const times: number[] = []
    const change = async (next: LoadBalancerSpec): Promise<void> => {
      const begun = performance.now()
      spec = next
      await balancers.apply(spec)
      times.push(performance.now() - begun)
    }
    for (let count = 0; count < changes; count++)
      await change({
        ...spec,
        routes: [...spec.routes, route({ path_match: `/other/${count}`, targets: [target()] })],
      })
    const weighted = (weight: number): RouteSpec => ({
      ...main,
      targets: targets.map((one) => ({ ...one, weight })),
    })
    const master = await masterOf(spec.id)
    for (const weight of [10, 20])
      await change({ ...spec, routes: [weighted(weight), ...spec.routes.slice(1)] })
    for (const [index, certificate] of certificates.entries())
      await change({
        ...spec,
        certificates: [certificate],
        listeners: [
          ...spec.listeners.slice(0, 1),
          {
            port: 443,
            host_port: null,
            protocol: 'https',
            certificate_ids: [certificate.id],
            redirect_to_https: false,
          },
        ],
        challenges: [{ token: `t${index}`, key_authorization: 'x' }],
      })
    const drained = targets.map((one, index) => (index === 0 ? { ...one, state: 'draining' as const } : one))
    await change({ ...spec, routes: [{ ...main, targets: drained }, ...spec.routes.slice(1)] })
    const stopped = targets.map((one, index) => (index === 1 ? { ...one, state: 'stopped' as const } : one))
    await change({ ...spec, routes: [{ ...main, targets: stopped }, ...spec.routes.slice(1)] })
    await delay(300)
    ending.abort()
    const seen = await loaded
    expect(Object.keys(seen)).toEqual(['200'])
    expect(await masterOf(spec.id)).toBe(master)
    console.log(`${changes + 6} changes, ${seen['200']} requests; ms: ${times.map(Math.round).join(' ')}`)
  })

  test('is not waited for if it is killed while it takes a new configuration', async () => {
    const spec = balancer()
    await balancers.apply(spec)
    const processes = async () => processesWith(`${settings.run}/${spec.id}/`)
    const before = (await processes()).map(({ pid }) => pid)
    const reloading = reload(placeOf(spec.id), await masterOf(spec.id), 'a version that never comes')
    const ended = expect(reloading).rejects.toThrow('The load balancer ended while')
    await eventually(async () => (await processes()).some(({ pid }) => !before.includes(pid)))
    for (const { pid } of await processes()) process.kill(pid, 'SIGKILL')
    await ended
    await balancers.mend()
    expect(await balancers.find(spec.id)).toMatchObject({ state: 'running' })
  })

  test('changes weights, addresses and states without a reload', async () => {
    const [one, other] = [target(), target({ address: noTarget })]
    const main = route({ targets: [one, other] })
    const spec = balancer({ routes: [main], health_check: { ...balancer().health_check, interval_sec: 60 } })
    await balancers.apply(spec)
    const workers = async (): Promise<number[]> =>
      (await processesWith(`${settings.run}/${spec.id}/`)).map(({ pid }) => pid)
    const before = await workers()
    const now = { ...other, address: '10.9.0.12', weight: 0 }
    const to = (targets: RouteSpec['targets']) => balancers.apply({ ...spec, routes: [{ ...main, targets }] })
    await to([
      { ...one, state: 'stopped' },
      { ...now, weight: 5 },
    ])
    const port = await portOf(spec.id)
    expect((await ask(port, '/')).got?.address).toBe('10.9.0.12')
    await to([one, now])
    expect((await ask(port, '/')).got?.address).toBe('10.9.0.10')
    await to([
      { ...one, state: 'draining' },
      { ...now, weight: 5 },
    ])
    expect((await ask(port, '/')).got?.address).toBe('10.9.0.12')
    expect(await workers()).toEqual(before)
  })

  test('leaves out a route that cannot be, says why, and applies the others', async () => {
    const bad: [Partial<RouteSpec>, string][] = [
      [{ path_match: '(', path_match_type: 'regex' }, 'regular expression'],
      [{ path_match: '(?=a)', path_match_type: 'regex' }, 'look-around'],
      [{ path_match: String.raw`\p{L}\u{1F600}`, path_match_type: 'regex' }, ''], // JavaScript's alone
      [{ host_match: 'a b' }, 'host name'],
      [{ request_headers_add: { 'content-length': '1' } }, 'content-length'],
      [{ response_headers_add: { 'x-a': 'a\r\nb: c' } }, 'ASCII'],
      [{ redirect: { status: 301, url: '{path}' } }, 'redirect'],
      [{ backend_tls: true, backend_ca_trust_id: newId() }, 'trust'],
    ]
    const routes = [route({ priority: 900 }), ...bad.map(([fields]) => route(fields))]
    const spec = balancer({ routes })
    const { refused, state } = await applied(spec)
    expect(state).toBe('running')
    for (const [index, [, reason]] of bad.entries())
      expect(refused).toContainEqual({
        route_id: routes[index + 1]?.id,
        reason: expect.stringContaining(reason),
      })
    expect(refused).toHaveLength(bad.length)
    expect((await ask(await portOf(spec.id), '/')).status).toBe(200)
    await expect(balancers.apply({ ...spec, namespace: 'none' })).rejects.toMatchObject({ permanent: false })
    expect((await ask(await portOf(spec.id), '/')).status).toBe(200)
  })

  test('is back at once after kill -9, on the same ports, and is known to the next engine', async () => {
    const spec = balancer({ routes: [route()] })
    await applied(spec)
    const port = await portOf(spec.id)
    const master = await masterOf(spec.id)
    await anotherEngine()
    expect(await balancers.find(spec.id)).toMatchObject({
      state: 'running',
      ports: [{ port: 80, host_port: port }],
    })
    expect(await masterOf(spec.id)).toBe(master)
    expect((await balancers.apply(spec)).state).toBe('running')
    expect(await masterOf(spec.id)).toBe(master)

    const told: string[] = []
    const ending = new AbortController()
    const watching = balancers.watch((id) => told.push(id), ending.signal)
    const times: number[] = []
    for (const which of ['master', 'worker', 'all']) {
      const running = await masterOf(spec.id)
      const all = (await processesWith(`${settings.run}/${spec.id}/`)).map(({ pid }) => pid)
      const begun = Date.now()
      for (const pid of all)
        if (which === 'all' || (which === 'master') === (pid === running)) process.kill(pid, 'SIGKILL')
      await eventually(
        async () => (await ask(port, '/')).status === 200 && !all.includes(await masterOf(spec.id)),
      )
      times.push(Date.now() - begun)
    }
    console.log(`back after ${times.join(', ')} ms`) // two seconds on an idle machine
    await eventually(() => told.includes(spec.id))
    ending.abort()
    await watching

    process.kill(await masterOf(spec.id), 'SIGKILL')
    await eventually(async () => (await balancers.find(spec.id))?.state === 'broken')
    await balancers.mend()
    expect((await balancers.find(spec.id))?.state).toBe('running')
  })

  test('is started again if its master lives and its worker has ended or does not answer', async () => {
    const spec = balancer({ routes: [route()] })
    await applied(spec)
    const port = await portOf(spec.id)
    const ending = new AbortController()
    const watching = balancers.watch(() => {}, ending.signal)
    for (const signal of ['SIGKILL', 'SIGSTOP'] as const) {
      const master = await masterOf(spec.id)
      const all = (await processesWith(`${settings.run}/${spec.id}/`)).map(({ pid }) => pid)
      process.kill(master, 'SIGSTOP') // so that it does not end with its worker
      for (const pid of all.filter((one) => one !== master)) process.kill(pid, signal)
      const begun = Date.now()
      await eventually(async () => {
        const now = await masterOf(spec.id)
        return now !== 0 && now !== master
      })
      await eventually(async () => (await ask(port, '/')).status === 200)
      console.log(`after ${signal} of the worker back in ${Date.now() - begun} ms`)
    }
    ending.abort()
    await watching
  })

  test('takes a target for unhealthy after as many failed checks as it is told, also after a reload', async () => {
    const check = { ...balancer().health_check, path: '/health', expect_status: 200, unhealthy_after: 100 }
    const spec = balancer({ routes: [route()], health_check: check })
    await applied(spec)
    const health = async () => (await balancers.find(spec.id))?.targets.map((one) => one.health)
    await eventually(async () => String(await health()) === 'healthy')
    const port = await portOf(spec.id)
    await ask(port, '/?health=500')
    await balancers.apply({ ...spec, challenges: [{ token: 't', key_authorization: 'x' }] })
    const hasFailed = async () =>
      (await statsOf(placeOf(spec.id))).some(({ check_status }) => check_status?.endsWith('L7STS'))
    await eventually(hasFailed)
    expect(await health()).toEqual(['healthy'])
    expect((await ask(port, '/?health=200')).status).toBe(200)
  })

  test('marks a target as unhealthy and healthy again by its checks, and tells so', async () => {
    const spec = balancer({
      routes: [route({ targets: [target(), target({ address: noTarget })] })],
      health_check: { ...balancer().health_check, path: '/health', expect_status: 200 },
    })
    await applied(spec)
    const told: string[] = []
    const ending = new AbortController()
    const watching = balancers.watch((id) => told.push(id), ending.signal)
    const health = async () => (await balancers.find(spec.id))?.targets.map((one) => one.health)
    await eventually(async () => String(await health()) === 'healthy,unhealthy')
    const port = await portOf(spec.id)
    // A reload does not send requests to what was down.
    await balancers.apply({ ...spec, challenges: [{ token: 't', key_authorization: 'x' }] })
    expect(await health()).toEqual(['healthy', 'unhealthy'])
    await ask(port, '/?health=500')
    await eventually(async () => String(await health()) === 'unhealthy,unhealthy')
    await eventually(() => told.length > 0)
    expect((await ask(port, '/')).status).toBe(503)
    ending.abort()
    await watching
  })

  test('keeps its host ports, and refuses one that another program uses', async () => {
    const inUse = lastPort
    const other = createServer().listen(inUse, '127.0.0.1')
    await once(other, 'listening')
    const spec = balancer({ routes: [route()] })
    const listening = (host_port: number | null) => [
      { ...(spec.listeners[0] as LoadBalancerSpec['listeners'][number]), host_port },
    ]
    await expect(balancers.apply({ ...spec, listeners: listening(inUse) })).rejects.toMatchObject({
      code: 'port_in_use',
      port: inUse,
    })
    await applied(spec)
    const port = await portOf(spec.id)
    await expect(balancers.apply({ ...spec, listeners: listening(inUse) })).rejects.toMatchObject({
      code: 'port_in_use',
    })
    expect((await ask(port, '/')).status).toBe(200)
    other.close()
    const second = balancer({ routes: [route()] })
    await applied(second)
    expect(await portOf(second.id)).not.toBe(port)
    expect(await portOf(spec.id)).toBe(port)
  })

  test('leaves nothing when it is removed, and what a killed call has left is listed', async () => {
    const spec = balancer({ routes: [route()] })
    await applied(spec)
    await balancers.remove(spec.id)
    await balancers.remove(spec.id)
    expect(await balancers.find(spec.id)).toBeNull()
    expect(await balancers.list()).toEqual([])

    await applied(spec)
    await rm(new LoadBalancerHost(settings as never).placeOf(spec.id).record)
    expect(await balancers.list()).toMatchObject([{ id: spec.id, state: 'leftover' }])
  })
})

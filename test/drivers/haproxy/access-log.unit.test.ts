import { stat } from 'node:fs/promises'
import { expect, test } from '@jest/globals'
import autocannon from 'autocannon'
import { openHaproxy } from '../../../drivers/haproxy/engine.ts'
import { makePlaces } from '../../../drivers/haproxy/places.ts'
import { readLogFiles } from '../../../drivers/system/log-reader.ts'
import { processesWith } from '../../../drivers/system/programs.ts'
import { type AccessEntry, accessOf } from '../../../lib/access-log.ts'
import { eventually } from '../../support/eventually.ts'
import {
  anotherEngine,
  applied,
  ask,
  balancer,
  balancers,
  portOf,
  raw,
  route,
  settings,
  target,
  withLoadBalancers,
} from '../../support/load-balancers.ts'

async function linesOf(id: string): Promise<AccessEntry[]> {
  const source = await balancers.files.sourceOf(id)
  if (!source) return []
  return balancers.files.open(source, 'all').flatMap((file) => {
    const text = String(file.read(0, file.bytes))
    file.close()
    return text
      .split('\n')
      .filter(Boolean)
      .flatMap((line) => accessOf((JSON.parse(line) as { log: string }).log) ?? [])
  })
}

const count = (id: string, wanted: number) =>
  eventually(async () => {
    const lines = await linesOf(id)
    return lines.length >= wanted && lines
  })

/** The samples with that many requests. */
const sampled = (id: string, requests: number) =>
  eventually(async () => {
    const found = await balancers.samples(id)
    return found?.routes[0]?.requests === requests && found
  })

async function readers(): Promise<number[]> {
  const ours = new Set((await processesWith(settings.run)).map(({ pid }) => pid))
  return (await processesWith('--readers')).map(({ pid }) => pid).filter((pid) => ours.has(pid))
}

const signalReader = async (signal: NodeJS.Signals): Promise<void> => {
  for (const pid of await readers()) process.kill(pid, signal)
}

/** Waits for its end: until then the engine takes it for a reader that runs. */
async function killReader(): Promise<void> {
  await signalReader('SIGKILL')
  await eventually(async () => (await readers()).length === 0)
}

const placeOf = (id: string) => makePlaces(settings.folder, settings.run)(id)

withLoadBalancers('the access log', () => {
  test('has a line for each request, whatever the client has written into it', async () => {
    const its = target()
    const main = route({ path_match: '/in', targets: [its] })
    const spec = balancer({ routes: [main] })
    await applied(spec)
    const port = await portOf(spec.id)
    await ask(port, '/in?secret=1', { method: 'POST', body: 'hello', host: 'a.test' })
    await ask(port, '/out"\\')
    await raw(port, 'GET /in HTTP/1.1\r\nHost: a.test\r\nBad Header: x\r\n\r\n')
    await raw(port, `GET /gr${Buffer.from('ü').toString('latin1')} HTTP/1.1\r\nHost: a.test\r\n\r\n`)
    await ask(port, '/last')
    const [first, second, third, fourth, last] = await count(spec.id, 5)
    expect(first).toMatchObject({
      began_at: expect.stringMatching(/^\d{4}-.*Z$/),
      request_id: expect.stringMatching(/^[\da-f-]{36}$/),
      client: '127.0.0.1',
      route_id: main.id,
      target_id: its.id,
      method: 'POST',
      host: 'a.test',
      path: '/in',
      protocol: 'HTTP/1.1',
      status: 200,
      retries: 0,
      end: '--',
    })
    expect(first?.total_ms).toBeGreaterThanOrEqual(0)
    expect(first?.bytes_in).toBeGreaterThan(5)
    expect(second).toMatchObject({ route_id: null, target_id: null, status: 404, path: '/out"\\' })
    expect(third).toMatchObject({ route_id: null, status: 400, method: null })
    expect(fourth).toMatchObject({ status: 400 })
    expect(last).toMatchObject({ path: '/last' })
  })

  test('loses no line while the engine, its reader and the process are replaced', async () => {
    const spec = balancer({ routes: [route()] })
    await applied(spec)
    const port = await portOf(spec.id)
    const send = async (name: string): Promise<void> => {
      for (let number = 0; number < 5; number++) await ask(port, `/${name}${number}`)
    }
    await send('a')
    await count(spec.id, 5)
    await balancers.close()
    await send('b')
    await anotherEngine()
    await killReader()
    await send('c')
    await balancers.apply({ ...spec, challenges: [{ token: 't', key_authorization: 'x' }] })
    await send('d')
    await balancers.mend()
    const paths = (await count(spec.id, 20)).map(({ path }) => path)
    // A worker and the one before it both write, so lines of consecutive requests may change places.
    expect(paths).toHaveLength(20)
    expect(new Set(paths)).toEqual(
      new Set(['a', 'b', 'c', 'd'].flatMap((name) => [0, 1, 2, 3, 4].map((number) => `/${name}${number}`))),
    )
  })

  test('is summed up by route and target, over reloads', async () => {
    const [good, other] = [target(), target({ address: '10.9.0.11' })]
    const main = route({ targets: [good, other] })
    const spec = balancer({ routes: [main] })
    await applied(spec)
    const port = await portOf(spec.id)
    for (let sent = 0; sent < 10; sent++) await ask(port, sent === 0 ? '/?status=500' : '/')
    await balancers.apply({ ...spec, challenges: [{ token: 't', key_authorization: 'x' }] })
    for (let sent = 0; sent < 10; sent++) await ask(port, '/?wait=20')
    const { routes: samples } = await sampled(spec.id, 20)
    expect(samples.map(({ route_id, target_id, requests }) => [route_id, target_id, requests])).toEqual([
      [null, null, 20],
      [main.id, null, 20],
      [main.id, good.id, 10],
      [main.id, other.id, 10],
    ])
    expect(samples[0]?.responses).toEqual({ '2xx': 19, '3xx': 0, '4xx': 0, '5xx': 1, other: 0 })
    expect(samples[0]?.bytes_out).toBeGreaterThan(1000)
    expect(samples[0]?.p99_ms).toBeGreaterThanOrEqual(15)
    expect(samples[0]?.p50_ms).toBeLessThan(samples[0]?.p99_ms ?? 0)
  })

  test('has sums that never go back, also of requests that no route took, and when its reader is killed', async () => {
    const main = route({ path_match: '/in' })
    const spec = balancer({ routes: [main] })
    await applied(spec)
    const port = await portOf(spec.id)
    await ask(port, '/in')
    const { started_at } = await sampled(spec.id, 1)
    for (let kill = 1; kill <= 3; kill++) {
      await ask(port, '/in')
      await ask(port, '/out')
      // At any moment: before the line is written, before it is summed up, or after both.
      await killReader()
      await balancers.mend()
    }
    const { started_at: same, routes } = await sampled(spec.id, 7)
    expect(same).toBe(started_at)
    expect(routes.map(({ route_id, requests }) => [route_id, requests])).toEqual([
      [null, 7],
      [main.id, 4],
      [main.id, 4],
    ])
    expect(routes[0]?.responses['4xx']).toBe(3)
  })

  test('loses no line while its reader does not keep up, and cuts what was read', async () => {
    const spec = balancer({ routes: [route()], log_cap_mib: 64 })
    await applied(spec)
    const port = await portOf(spec.id)
    await ask(port, '/')
    await count(spec.id, 1)
    const amount = 8_000
    const url = `http://${settings.ports.address}:${port}/${'x'.repeat(2_000)}`
    const sends = async (): Promise<void> => {
      const { non2xx, errors } = await autocannon({ url, connections: 10, amount })
      expect([non2xx, errors]).toEqual([0, 0])
    }
    await signalReader('SIGSTOP')
    await sends()
    const { log } = placeOf(spec.id)
    const kept = await stat(log)
    expect(kept.blocks * 512).toBeGreaterThan(kept.size)
    await signalReader('SIGCONT')
    await count(spec.id, 1 + amount)
    await killReader()
    await sends()
    await balancers.mend()
    await count(spec.id, 1 + 2 * amount)
    expect(await linesOf(spec.id)).toHaveLength(1 + 2 * amount)
    expect(await eventually(async () => (await stat(log)).blocks * 512 < kept.size)).toBe(true)
    expect((await stat(log)).size).toBeGreaterThan(2 * kept.size - 10_000)
  })

  test('is complete when it is archived before the removal', async () => {
    const spec = balancer({ routes: [route()] })
    const archived: (string | null)[][] = []
    const beforeRemoval = async (id: string): Promise<void> => {
      archived.push((await linesOf(id)).map(({ path }) => path))
    }
    const own = await openHaproxy({ ...settings, beforeRemoval })
    await own.apply(spec)
    const port = await portOf(spec.id)
    await eventually(async () => (await ask(port, '/0')).status === 200)
    const before = (await count(spec.id, 1)).length
    await Promise.all(Array.from({ length: 50 }, (_, number) => ask(port, `/${number}`)))
    await own.remove(spec.id)
    expect(archived).toHaveLength(2)
    expect(archived.at(-1)).toHaveLength(before + 50)
    await own.close()
  })

  test('is followed over new files, from a line on', async () => {
    const spec = balancer({ routes: [route()], log_cap_mib: 1 })
    await applied(spec)
    const port = await portOf(spec.id)
    const long = `/${'x'.repeat(2000)}`
    for (let number = 0; number < 10; number++) await ask(port, `${long}${number}`)
    await count(spec.id, 10)
    const source = await balancers.files.sourceOf(spec.id)
    if (!source) throw new Error('no log')
    const gone = new AbortController()
    const paths: string[] = []
    const reading = (async () => {
      for await (const { line } of readLogFiles(source, { lines: 5, follow: true, signal: gone.signal }))
        paths.push(accessOf(line)?.path ?? '')
    })()
    const last = 400 // more than one file of half a MiB
    for (let number = 10; number <= last; number++) await ask(port, `${long}${number}`)
    await eventually(() => paths.length >= last - 4)
    gone.abort()
    await reading
    expect(balancers.files.hasFull(source.engine_id)).toBe(true)
    expect(paths).toEqual((await linesOf(spec.id)).slice(5).map(({ path }) => path))
  })
})

import { createServer, type Server } from 'node:http'
import { once } from 'node:events'
import type { AddressInfo } from 'node:net'
import { afterEach, expect, test } from '@jest/globals'
import { pingDocker } from '../../drivers/docker/connection.ts'
import type { FoundInstance } from '../../drivers/instances.ts'
import type { HostReport, SignOfLife } from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { makeLogger } from '../../lib/log.ts'
import { observeInstances } from '../../worker/host/instances.ts'
import { keepReporting, makeLook } from '../../worker/host/reporter.ts'
import { keepAlive, watchEngine } from '../../worker/host/sign-of-life.ts'
import { eventually } from '../support/eventually.ts'

const log = makeLogger('host', 'fatal')

// An engine that takes connections and never answers, as one that is frozen.
let servers: Server[] = []
async function frozenEngine(): Promise<string> {
  const server = createServer(() => {})
  servers.push(server)
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`
}
afterEach(() => {
  for (const server of servers) {
    server.closeAllConnections()
    server.close()
  }
  servers = []
})

const instance = (id: string): FoundInstance => ({
  kind: 'container',
  id,
  engine_id: id,
  state: 'running',
  exit_code: null,
  oom_killed: false,
  restart_count: 0,
  started_at: null,
  pid: 1,
  health: 'none',
  image_digest: '',
  ports: [],
})

/** Answers when the signal aborts: with its reason. */
const never = (signal?: AbortSignal): Promise<never> =>
  new Promise((_, reject) =>
    signal?.addEventListener('abort', () => reject(signal.reason as Error), { once: true }),
  )

test('a host gives signs of life while its engine is frozen, and says since when it is', async () => {
  const dockerHost = await frozenEngine()
  const signs: SignOfLife[] = []
  const stop = new AbortController()
  const engine = watchEngine((signal) => pingDocker(dockerHost, signal), log)
  const alive = keepAlive({ engine, send: async (sign) => void signs.push(sign), log }, stop.signal)
  await eventually(() => signs.some(({ engine_silent_ms }) => engine_silent_ms !== null))
  stop.abort()
  await alive
  expect(signs[0]).toEqual({ engine_silent_ms: null })
  expect(signs.at(-1)?.engine_silent_ms).toBeGreaterThanOrEqual(10_000)
})

test('an instance that its engine does not tell of delays no other, and is unknown', async () => {
  const [stuck, ...well] = Array.from({ length: 30 }, newId)
  let asked = 0
  const seen = observeInstances(
    {
      ids: async () => [stuck ?? '', ...well],
      find(id, signal) {
        if (id === stuck) return never(signal)
        asked++
        return Promise.resolve(instance(id))
      },
      remove: async () => {},
      watch: async () => {},
    },
    log,
  )
  const things = await seen.observe()
  expect(asked).toBe(29)
  expect(things.filter(({ state }) => state === 'running')).toHaveLength(29)
  expect(things.filter(({ state }) => state === 'unknown')).toMatchObject([{ id: stuck }])
  // The next look asks for that one alone.
  await seen.observe()
  expect(asked).toBe(29)
})

test('instances are read side by side, at most eight at once', async () => {
  let open = 0
  let most = 0
  const seen = observeInstances(
    {
      ids: async () => Array.from({ length: 40 }, newId),
      async find(id) {
        most = Math.max(most, ++open)
        await new Promise(setImmediate)
        open--
        return instance(id)
      },
      remove: async () => {},
      watch: async () => {},
    },
    log,
  )
  expect(await seen.observe()).toHaveLength(40)
  expect(most).toBe(8)
})

test('a part that is not looked at in time is not looked at again before that look has ended', async () => {
  const looks: PromiseWithResolvers<{ kind: string; id: string; state: string }[]>[] = []
  const observe = () => {
    const look = Promise.withResolvers<{ kind: string; id: string; state: string }[]>()
    looks.push(look)
    return look.promise
  }
  const look = makeLook({ name: 'lamps', kinds: ['lamp'], observe }, 5, log)
  expect(await look()).toBeNull()
  expect(await look()).toBeNull()
  expect(looks).toHaveLength(1)
  looks[0]?.resolve([])
  await eventually(async () => (await look()) === null && looks.length === 2)
  looks[1]?.reject(new Error('broken'))
  expect(await look()).toBeNull()
})

test('a report says which kinds of things were not seen, and has the others', async () => {
  const reports: HostReport[] = []
  const stop = new AbortController()
  const lamp = { kind: 'lamp', id: 'l1', state: 'on' }
  await keepReporting(
    {
      parts: [
        { name: 'lamps', kinds: ['lamp'], observe: async () => [lamp] },
        { name: 'fans', kinds: ['fan'], observe: () => Promise.reject(new Error('does not answer')) },
      ],
      about: async () => ({
        data_plane_url: 'https://127.0.0.1:1',
        data_plane_certificate: '-',
        address: '127.0.0.1',
        capacity: { cpu_cores: 1, memory_mib: 1, disk_gib: 1 },
        engine: { name: 'docker', version: '1' },
        kinds: ['container'],
        underlay_address: null,
        tunnel_key: null,
        published_ports: { range: [20_000, 29_999], reserved: [] },
      }),
      machines: () => null,
      send: async (report) => {
        reports.push(report)
        stop.abort()
        return { jwks: { keys: [] }, data_plane_url: '', not_yours: [], things: [], wanted: {} }
      },
      log,
    },
    stop.signal,
  )
  expect(reports).toMatchObject([{ things: [lamp], unseen: ['fan'] }])
})

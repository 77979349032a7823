import { once } from 'node:events'
import { existsSync, readdirSync, statSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { createServer, type IncomingMessage, request as ask } from 'node:http'
import { createSecureServer, createServer as createHttp2 } from 'node:http2'
import { type AddressInfo, connect, createServer as createTcp } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { NativeConnection } from '@temporalio/worker'
import { makeContainersOnHost } from '../../activities/host/containers.ts'
import { newId } from '../../lib/ids.ts'
import { makeLogger } from '../../lib/log.ts'
import { makeSelfSigned } from '../../lib/self-signed.ts'
import { doorName, type Outside } from '../../worker/host/door.ts'
import { type Doors, makeDoors } from '../../worker/host/doors.ts'
import { inActivity } from '../support/in-activity.ts'
import { eventually } from '../support/eventually.ts'

// The way out of a runner, whose container has no other. What comes through it may be hostile.

const log = makeLogger('host', 'fatal')
const runner = newId()
const container = newId()

/** What the API was asked. */
let asked: { method: string; url: string; headers: IncomingMessage['headers']; body: string }[]
/** What the API does next, instead of an answer. */
let hold: (() => Promise<void>) | null
const api = createServer((request, response) => {
  const answer = async () => {
    const { method = '', url = '', headers } = request
    await hold?.()
    if (url.endsWith('/early')) return response.writeHead(413).end('too large')
    asked.push({ method, url, headers, body: await text(request) })
    return response
      .writeHead(200, { 'content-type': 'application/json', 'set-cookie': 'a=b' })
      .end('{"ok":1}')
  }
  void answer()
})
/** What the gateway for models was asked. */
let called: { url: string; headers: IncomingMessage['headers']; body: string }[]
const models = createServer((request, response) => {
  const answer = async () => {
    called.push({ url: request.url ?? '', headers: request.headers, body: await text(request) })
    return response.writeHead(200, { 'content-type': 'application/json' }).end('{"model":1}')
  }
  void answer()
})
/** What it takes for a call of gRPC: an empty answer. */
const gateway = createHttp2()
gateway.on('stream', (stream) => {
  stream.respond({ ':status': 200, 'content-type': 'application/grpc' }, { waitForTrailers: true })
  stream.once('wantTrailers', () => stream.sendTrailers({ 'grpc-status': '0' }))
  stream.end(Buffer.alloc(5))
})
/** What a runner must not reach, such as a database of this machine. */
const database = createTcp((socket) => socket.end('reached'))

const portOf = (server: { address(): unknown }): number => (server.address() as AddressInfo).port
let run: string
let outside: Outside
let doors: Doors
const door = (id = container): string => join(run, id, doorName)
const doorsTo = (to: Partial<Outside> = {}): Doors =>
  makeDoors({ run, outside: { ...outside, ...to }, namespace: 'keelson', log })

beforeAll(async () => {
  for (const server of [api, models, gateway, database])
    await once(server.listen(0, '127.0.0.1'), 'listening')
  run = await mkdtemp(join(tmpdir(), 'doors-'))
  outside = {
    gatewayUrl: `http://127.0.0.1:${portOf(gateway)}`,
    gatewayAuthorities: () => null,
    apiUrl: `http://127.0.0.1:${portOf(api)}`,
    modelsUrl: `http://127.0.0.1:${portOf(models)}`,
  }
  doors = doorsTo()
  await doors.hold(container, runner, async () => {})
})
beforeEach(() => {
  asked = []
  called = []
  hold = null
})
afterAll(async () => {
  await doors.close()
  for (const server of [api, models, gateway, database]) server.close()
  await rm(run, { recursive: true })
})

const own = (path: string): string => `/internal/v1/runners/${runner}${path}`

/** Sends a request through the door. */
const send = async (
  path: string,
  { method = 'GET', headers = {}, body = '' }: { method?: string; headers?: object; body?: string } = {},
): Promise<{ status: number; said: string; headers: IncomingMessage['headers'] }> => {
  const request = ask({ socketPath: door(), path, method, headers: { ...headers }, agent: false })
  request.on('error', () => {}) // after an early answer
  request.end(body)
  const [answer] = (await once(request, 'response')) as [IncomingMessage]
  return { status: answer.statusCode ?? 0, said: await text(answer), headers: answer.headers }
}

/** Sends bytes through the door, and reads until it closes or the answer has begun. */
async function sendRaw(bytes: string): Promise<string> {
  const socket = connect(door())
  socket.on('error', () => {})
  socket.write(bytes)
  const [said] = (await Promise.race([once(socket, 'data'), once(socket, 'close')])) as [unknown]
  socket.destroy()
  return String(said)
}

describe('through its door, a runner reaches', () => {
  test('its own part of the internal API', async () => {
    const headers = { authorization: 'Bearer x', 'content-type': 'text/plain' }
    const answer = await send(own('/runs/1/output?attempt=2'), { method: 'PUT', headers, body: 'out' })
    expect(answer).toMatchObject({ status: 200, said: '{"ok":1}' })
    expect(asked).toMatchObject([
      { method: 'PUT', url: own('/runs/1/output?attempt=2'), headers, body: 'out' },
    ])
  })

  test.each(['/v1/chat/completions', '/v1/messages'])('the gateway for models at %s', async (path) => {
    const headers = { authorization: 'Bearer x', 'content-type': 'application/json' }
    const answer = await send(path, { method: 'POST', headers, body: '{}' })
    expect(answer).toMatchObject({ status: 200, said: '{"model":1}' })
    expect(called).toMatchObject([{ url: path, headers, body: '{}' }])
    expect(asked).toEqual([])
  })

  test('the gateway, with a worker’s own connection, by a port that leads to the door', async () => {
    const native = await connectByDoor(outside.gatewayUrl)
    await native.close()
  })

  test('a gateway by TLS, whose certificate its host checks', async () => {
    const { certificate, key } = await makeSelfSigned({ name: 'localhost', years: 1 })
    const secure = createSecureServer({ cert: certificate, key })
    gateway.listeners('stream').forEach((one) => secure.on('stream', one as never))
    await once(secure.listen(0, 'localhost'), 'listening')
    const gatewayUrl = `https://localhost:${portOf(secure)}`
    const trusting = doorsTo({ gatewayUrl, gatewayAuthorities: () => certificate })
    const [id, stranger] = [newId(), newId()]
    await trusting.hold(id, runner, async () => {})
    const native = await connectByDoor(gatewayUrl, door(id))
    await native.close()
    const untrusting = doorsTo({ gatewayUrl })
    await untrusting.hold(stranger, runner, async () => {})
    await expect(connectByDoor(gatewayUrl, door(stranger))).rejects.toThrow('502')
    await Promise.all([trusting.close(), untrusting.close()])
    secure.close()
  })
})

describe('through its door, a runner does not reach', () => {
  const paths: [string, string][] = [
    ['the API for tenants', '/api/v1/containers'],
    ['the API’s logins', '/api/v1/oauth/token'],
    ['the API’s part for hosts', `/internal/v1/hosts/${runner}/codec-keys`],
    ['another runner’s part', `/internal/v1/runners/${newId()}/spec`],
    ['all runners', '/internal/v1/runners/'],
    ['its part by a longer id', `/internal/v1/runners/${runner}x/spec`],
    ['a path above its own', own('/../other/spec')],
    ['the same with escapes', own('/%2e%2e/other/spec')],
    ['a path with an escaped slash', own('/..%2f..%2fhosts/x')],
    ['a path with an empty part', own('//spec')],
    ['a path with a backslash', own('/\\spec')],
    ['a query with an escape', own('/spec?a=%0a')],
    ['a whole URL', `http://169.254.169.254/latest/meta-data`],
    ['a whole URL of its own path', `http://127.0.0.1:1${own('/spec')}`],
    ['the server itself', '*'],
  ]
  test.each(paths)('%s', async (_, path) => {
    expect((await send(path)).status).toBe(404)
    expect(asked).toEqual([])
  })

  test('its own path by another method', async () => {
    for (const method of ['DELETE', 'PATCH', 'OPTIONS', 'HEAD', 'TRACE'])
      expect([method, (await send(own('/spec'), { method })).status]).toEqual([method, 404])
    expect(asked).toEqual([])
  })

  test('anything else by CONNECT', async () => {
    const gatewayPort = portOf(gateway)
    const targets = [
      `127.0.0.1:${portOf(database)}`,
      `127.0.0.1:${portOf(api)}`,
      `localhost:${gatewayPort}`,
      `127.0.0.1:${gatewayPort}@127.0.0.1:${portOf(database)}`,
      `127.0.0.1:0${gatewayPort}`,
      '169.254.169.254:80',
      'mongodb:27017',
      `/${doorName}`,
      'unix:/var/run/docker.sock',
      '',
    ]
    for (const target of targets) {
      const said = await sendRaw(`CONNECT ${target} HTTP/1.1\r\nhost: 127.0.0.1:${gatewayPort}\r\n\r\n`)
      expect([target, said.split('\r\n')[0]]).not.toEqual([target, 'HTTP/1.1 200 OK'])
      expect(said).not.toContain('reached')
    }
  })
})

describe('what a runner says beside its request', () => {
  test('does not reach the API, nor what the API says beside its answer the runner', async () => {
    const headers = {
      host: 'api.example.org',
      cookie: 'session=1',
      'x-forwarded-for': '10.0.0.1',
      'x-real-ip': '10.0.0.1',
      forwarded: 'for=10.0.0.1',
      upgrade: 'websocket',
      connection: 'upgrade',
      'idempotency-key': 'x',
    }
    const answer = await send(own('/spec'), { headers })
    expect(answer.status).toBe(200)
    expect(answer.headers['set-cookie']).toBeUndefined()
    expect(Object.keys(asked[0]?.headers ?? {}).toSorted()).toEqual(['connection', 'host'])
    expect(asked[0]?.headers.host).toBe(`127.0.0.1:${portOf(api)}`)
  })

  test('is one request, however its length is told', async () => {
    const smuggled = `GET /api/v1/containers HTTP/1.1\r\nhost: x\r\n\r\n`
    const both = [
      `POST ${own('/spec')} HTTP/1.1`,
      'host: x',
      `content-length: ${5 + smuggled.length}`,
      'transfer-encoding: chunked',
    ]
    expect(await sendRaw(`${both.join('\r\n')}\r\n\r\n0\r\n\r\n${smuggled}`)).toMatch(/^HTTP\/1.1 400/)
    const after = `POST ${own('/spec')} HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\n\r\n${smuggled}`
    expect(await sendRaw(after)).toMatch(/^HTTP\/1.1 (200|404)/)
    expect(asked.map(({ url }) => url)).not.toContain('/api/v1/containers')
  })

  test('has at most 8 KiB of headers', async () => {
    expect((await send(own('/spec'), { headers: { authorization: 'x'.repeat(9_000) } })).status).toBe(431)
    expect(asked).toEqual([])
  })
})

test('a runner has eight requests under way at most, and delays no other runner', async () => {
  const released = Promise.withResolvers<void>()
  let waiting = 0
  hold = () => (waiting++, released.promise)
  const busy = Array.from({ length: 8 }, () => send(own('/spec')))
  await eventually(() => waiting === 8)
  expect((await send(own('/spec'))).status).toBe(503)

  const [otherContainer, other] = [newId(), newId()]
  await doors.hold(otherContainer, other, async () => {})
  hold = null
  const request = ask({
    socketPath: door(otherContainer),
    path: `/internal/v1/runners/${other}/spec`,
    agent: false,
  })
  request.end()
  const [answer] = (await once(request, 'response')) as [IncomingMessage]
  expect(answer.statusCode).toBe(200)
  answer.resume()

  released.resolve()
  expect((await Promise.all(busy)).map(({ status }) => status)).toEqual(Array(8).fill(200))
  expect((await send(own('/spec'))).status).toBe(200)
  await doors.remove(otherContainer)
})

test('a runner has 64 connections at most', async () => {
  const sockets = Array.from({ length: 70 }, () => connect(door()))
  for (const socket of sockets) socket.on('error', () => {})
  await eventually(() => sockets.filter((socket) => socket.closed).length === 6)
  for (const socket of sockets) socket.destroy()
  await eventually(async () => (await send(own('/spec')).catch(() => null))?.status === 200)
})

test('an answer that comes before the request was read reaches the runner', async () => {
  const answer = await send(own('/early'), { method: 'PUT', body: 'x'.repeat(1024 ** 2) })
  expect(answer).toMatchObject({ status: 413, said: 'too large' })
})

test('without the API, and without the gateway, the door says 502', async () => {
  const nowhere = createTcp()
  await once(nowhere.listen(0, '127.0.0.1'), 'listening')
  const url = `http://127.0.0.1:${portOf(nowhere)}`
  await new Promise((resolve) => nowhere.close(resolve))
  const id = newId()
  const others = doorsTo({ gatewayUrl: url, apiUrl: url })
  await others.hold(id, runner, async () => {})
  const request = ask({ socketPath: door(id), path: own('/spec'), agent: false })
  request.end()
  const [answer] = (await once(request, 'response')) as [IncomingMessage]
  expect(answer.statusCode).toBe(502)
  await expect(connectByDoor(url, door(id))).rejects.toThrow('502')
  await others.close()
})

describe('a door', () => {
  test('opens again in the same folder when its host starts again, also over what was left', async () => {
    const id = newId()
    const first = doorsTo()
    await first.hold(id, runner, async () => {})
    const { ino } = statSync(join(run, id))
    await first.close()
    const second = doorsTo()
    await second.keep([{ id, runner }])
    expect(statSync(join(run, id)).ino).toBe(ino)
    expect(readdirSync(join(run, id))).toEqual([doorName])
    // A host that was killed leaves its socket.
    const third = doorsTo()
    await third.keep([{ id, runner }])
    expect(statSync(join(run, id)).ino).toBe(ino)
    await third.remove(id)
    expect(existsSync(join(run, id))).toBe(false)
    await second.close()
  })

  test('is removed with its container, and not while the engine does not show the container yet', async () => {
    const [id, its] = [newId(), newId()]
    const some = doorsTo()
    await some.hold(id, its, async () => {
      await some.keep([])
      expect(existsSync(door(id))).toBe(true)
    })
    await some.keep([])
    expect(existsSync(door(id))).toBe(true)
    await some.keep([{ id, runner: its }])
    await some.keep([])
    expect(existsSync(join(run, id))).toBe(false)
  })

  test('is not open to the machine’s other users by its path', async () => {
    const inner = join(run, 'doors')
    expect(await makeDoors({ run: inner, outside, namespace: 'keelson', log }).ready()).toBe(true)
    expect(statSync(inner).mode & 0o777).toBe(0o700)
    const file = join(run, container, doorName)
    expect(await makeDoors({ run: file, outside, namespace: 'keelson', log }).ready()).toBe(false)
  })
})

test('a runner starts with its door and the names of what is behind it, and no other container does', async () => {
  const runs: { mounts: unknown; vars: unknown }[] = []
  const activities = makeContainersOnHost({
    engine: {
      pull: async () => ({ image_digest: 'sha256:x' }),
      run: async ({ mounts }: { mounts: unknown }, vars: unknown) => runs.push({ mounts, vars }),
      remove: async () => {},
    } as never,
    configVars: async () => ({ KEELSON_RUNNER_KEY: 'secret' }),
    registryLogin: async () => null,
    hosted: { mountsFor: async () => [], detachAll: async () => {} } as never,
    networks: {} as never,
    doors,
    turns: { take: async (work) => work() },
  })
  const [with_, without] = [newId(), newId()]
  const spec = { image: 'x', image_digest: null }
  await inActivity(() =>
    activities.runContainerOnHost({ ...spec, id: with_, runner: newId() } as never, newId()),
  )
  await inActivity(() => activities.runContainerOnHost({ ...spec, id: without } as never, newId()))
  expect(runs).toEqual([
    {
      mounts: [{ host_path: join(run, with_), mount_path: '/run/keelson', read_only: true }],
      vars: {
        KEELSON_RUNNER_KEY: 'secret',
        KEELSON_GATEWAY_URL: outside.gatewayUrl,
        KEELSON_TEMPORAL_NAMESPACE: 'keelson',
      },
    },
    { mounts: [], vars: { KEELSON_RUNNER_KEY: 'secret' } },
  ])
  await inActivity(() => activities.removeContainerOnHost(with_))
  expect(existsSync(join(run, with_))).toBe(false)
})

/** As a runner connects: the SDK takes no socket of a file, so a port of its own leads to the door. */
async function connectByDoor(gatewayUrl: string, path = door()): Promise<NativeConnection> {
  const port = createTcp((socket) => {
    const through = connect(path)
    for (const one of [socket, through]) one.on('error', () => {})
    socket.pipe(through).pipe(socket)
  })
  await once(port.listen(0, '127.0.0.1'), 'listening')
  const { hostname, port: gatewayPort } = new URL(gatewayUrl)
  try {
    return await NativeConnection.connect({
      address: `${hostname}:${gatewayPort}`,
      tls: false,
      proxy: { type: 'http-connect', targetHost: `127.0.0.1:${portOf(port)}` },
    })
  } finally {
    port.close()
  }
}

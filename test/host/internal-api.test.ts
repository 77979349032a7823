import { once } from 'node:events'
import {
  createServer,
  type IncomingHttpHeaders,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { afterAll, beforeAll, beforeEach, expect, test } from '@jest/globals'
import { type CryptoKey, exportJWK, generateKeyPair, SignJWT } from 'jose'
import { internalAudience, PublicKey, requestHash } from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { Host } from '../../models/compute/hosts.ts'
import { type InternalApi, makeInternalApi } from '../../worker/host/internal-api.ts'
import { replicas } from '../support/api-clients.ts'
import { insertHost } from '../support/inserted-hosts.ts'
import { emptyReport } from '../support/reports.ts'

// What someone can do with a host's requests to the internal API who reads them on their way, or keeps them from arriving.

interface Captured {
  method: string
  target: string
  headers: IncomingHttpHeaders
  body: Buffer
}

let captured: Captured[] = []
let isCut = false
let wire: Server
let hostId: string
let key: CryptoKey
let host: InternalApi

beforeAll(async () => {
  wire = createServer((request, response) => {
    pass(request, response).catch(() => response.destroy())
  })
  await once(wire.listen(0, '127.0.0.1'), 'listening')
  const pair = await generateKeyPair('EdDSA', { crv: 'Ed25519', extractable: true })
  const public_key = PublicKey.strip().parse(await exportJWK(pair.publicKey))
  hostId = (await insertHost({ public_key }))._id
  key = pair.privateKey
  host = makeInternalApi(`http://127.0.0.1:${(wire.address() as AddressInfo).port}`, { hostId, key })
})
beforeEach(() => {
  captured = []
  isCut = false
})
afterAll(async () => {
  wire.closeAllConnections()
  await once(wire.close(), 'close')
})

async function pass(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { method = '', url = '', headers } = request
  const passing = { method, target: url, headers, body: await buffer(request) }
  captured.push(passing)
  if (isCut) return void request.socket.destroy()
  const answer = await send(passing)
  response.writeHead(answer.status, { 'content-type': answer.headers.get('content-type') ?? '' })
  response.end(await answer.text())
}

/** Sends what was captured to an api, with what an attacker changes. */
const send = ({
  method,
  target,
  headers,
  body,
  api = replicas()[0],
}: Captured & { api?: string | undefined }): Promise<Response> =>
  fetch(new URL(target, api), {
    method,
    headers: {
      authorization: headers.authorization ?? '',
      ...(headers['content-type'] ? { 'content-type': headers['content-type'] } : {}),
    },
    ...(method === 'GET' ? {} : { body: new Uint8Array(body) }),
  })

const reported = (cpu_cores: number) => host.report(emptyReport({ capacity: { ...capacity, cpu_cores } }))
const capacity = { cpu_cores: 0, memory_mib: 1, disk_gib: 0 }
const recorded = async () => (await Host.findById(hostId).orFail().lean()).capacity?.cpu_cores

/** A request that never arrived. */
async function intercepted(request: () => Promise<unknown>): Promise<Captured> {
  isCut = true
  await expect(request()).rejects.toMatchObject({ code: 'platform_unavailable' })
  isCut = false
  return captured.at(-1) as Captured
}

test('a captured request of a host is refused when it is repeated, by every api, and changes nothing', async () => {
  await reported(1)
  await reported(2)
  const [first] = captured
  for (const api of replicas()) {
    const answer = await send({ ...(first as Captured), api })
    expect([answer.status, await answer.json()]).toEqual([
      401,
      expect.objectContaining({ code: 'unauthenticated', detail: 'The token was used before' }),
    ])
  }
  expect(await recorded()).toBe(2)
})

test('of requests with one token that reach all apis at once, one is taken', async () => {
  const request = await intercepted(() => reported(3))
  const all = Array.from({ length: 5 }, () => replicas().map((api) => send({ ...request, api }))).flat()
  const statuses = (await Promise.all(all)).map(({ status }) => status)
  expect(statuses.toSorted((a, b) => a - b)).toEqual([200, ...statuses.slice(1).map(() => 401)])
})

test('the token of a host’s request opens no other, and stays good for its own', async () => {
  const request = await intercepted(() => reported(4))
  const { target } = request
  const others: Partial<Captured>[] = [
    { method: 'GET', target: target.replace('reports', 'codec-keys') },
    { method: 'GET', target: target.replace('reports', 'networks') },
    { target: target.replace('reports', 'samples') },
    { target: `${target}?more=1` },
  ]
  for (const other of others)
    expect([other, (await send({ ...request, ...other })).status]).toEqual([other, 401])
  const asking = await intercepted(() => host.transferOf(newId()))
  expect((await send({ ...asking, method: 'PUT' })).status).toBe(401)
  expect((await send(asking)).status).toBe(404)
  expect(await recorded()).not.toBe(4)
  expect((await send(request)).status).toBe(200)
  expect(await recorded()).toBe(4)
})

test('a host that sends a request again is heard', async () => {
  await intercepted(() => reported(5))
  await reported(5)
  expect(await recorded()).toBe(5)
})

const networks = (): string => `/internal/v1/hosts/${hostId}/networks`

async function askNetworks(claims: Record<string, unknown>): Promise<number> {
  const now = Math.floor(Date.now() / 1000)
  const honest = { jti: newId(), req: requestHash('GET', networks()), iat: now, exp: now + 60 }
  const token = await new SignJWT({ iss: hostId, sub: hostId, aud: internalAudience, ...honest, ...claims })
    .setProtectedHeader({ alg: 'EdDSA', typ: 'host+jwt' })
    .sign(key)
  const headers = { authorization: `Bearer ${token}` }
  return (await send({ method: 'GET', target: networks(), headers, body: Buffer.alloc(0) })).status
}

test('a token of a host is refused without an id, or without the hash of its request', async () => {
  expect(await askNetworks({})).toBe(200)
  for (const jti of [undefined, '', 7, 'x'.repeat(65)])
    expect([jti, await askNetworks({ jti })]).toEqual([jti, 401])
  expect(await askNetworks({ req: undefined })).toBe(401)
})

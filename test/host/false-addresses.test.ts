import { once } from 'node:events'
import { createServer as createPlainServer } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo, Server } from 'node:net'
import { Readable } from 'node:stream'
import { createServer as createTlsServer } from 'node:tls'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import {
  askHost,
  askRegistry,
  askService,
  askUpload,
  connectHost,
} from '../../api/compute/observation/data-plane.ts'
import { newTunnelKeys } from '../../drivers/linux/tunnel-keys.ts'
import { HostReport } from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { makeSelfSigned, type SelfSigned } from '../../lib/self-signed.ts'
import { Host } from '../../models/compute/hosts.ts'
import { observe } from '../../models/compute/observe.ts'
import { tellPart } from '../../models/compute/tell-part.ts'
import { insertHost } from '../support/inserted-hosts.ts'
import { emptyReport } from '../support/reports.ts'

// The platform sends requests neither where a host that lies tells it to, nor to a server that has taken a host's place.

const asked: string[] = []
let redirected = 0
/** What the impostor reads, decrypted. */
let heard = ''
let inside: Server
let host: Server
let impostor: Server
let hostId: string
let takenOver: string

const portOf = (server: Server): number => (server.address() as AddressInfo).port
const urlOf = (server: Server): string => `https://127.0.0.1:${portOf(server)}`
const selfSigned = () => makeSelfSigned({ name: 'host.keelson.internal', years: 1 })
const pem = ({ certificate: cert, key }: SelfSigned) => ({ cert, key })

beforeAll(async () => {
  const [own, foreign] = [await selfSigned(), await selfSigned()]
  inside = createPlainServer((request, response) => {
    asked.push(request.url ?? '')
    response.end('{"secret":true}')
  })
  host = createServer(pem(own), (_request, response) => {
    redirected++
    response.writeHead(307, { location: `http://127.0.0.1:${portOf(inside)}/inside` }).end()
  })
  impostor = createTlsServer(pem(foreign), (socket) => {
    socket.on('data', (data) => (heard += data.toString('latin1')))
    socket.on('error', () => {})
  })
  for (const server of [inside, host, impostor]) await once(server.listen(0, '127.0.0.1'), 'listening')
  const data_plane_certificate = own.certificate
  hostId = (await insertHost({ data_plane_certificate, data_plane_url: urlOf(host) }))._id
  takenOver = (await insertHost({ data_plane_certificate, data_plane_url: urlOf(impostor) }))._id
})
afterAll(() => Promise.all([inside, host, impostor].map((server) => once(server.close(), 'close'))))

const body = () => Readable.from(['the body'])
const pushed = { method: 'PUT', path: '/v2/', headers: {} }

/** Each way in which the platform asks a host. */
const requests = (id: string): Promise<unknown>[] => {
  const { signal } = new AbortController()
  const none = new URLSearchParams()
  const machine = { host_id: id, machine_id: newId() }
  return [
    askHost(id, newId(), 'logs', none, signal),
    askService(id, { ...machine, service_id: newId() }, none, signal),
    askUpload(machine, newId(), signal),
    askUpload(machine, newId(), signal, { offset: 0, atMost: 8, bytes: body() }),
    connectHost(id, newId(), 'console', none),
    tellPart('networks', [id]),
    askRegistry(machine, newId(), { ...pushed, body: body(), signal }).then((answer) => answer.destroy()),
  ]
}

test('the platform follows no redirect of a host', async () => {
  const answers = await Promise.allSettled(requests(hostId))
  // A registry's answer goes to its client as it is.
  expect(answers.map(({ status }) => status)).toEqual([...Array(6).fill('rejected'), 'fulfilled'])
  expect([redirected, asked]).toEqual([7, []])
})

test('a server with another certificate at a host’s address gets no byte of any request', async () => {
  let connections = 0
  impostor.on('connection', () => connections++)
  const answers = await Promise.allSettled(requests(takenOver))
  expect(answers.map(({ status }) => status)).toEqual(Array(7).fill('rejected'))
  expect([connections, heard]).toEqual([7, ''])
})

const report = (data_plane_url: string): HostReport => emptyReport({ data_plane_url })

test('a host reports another port, and never another address', async () => {
  const reached = async (): Promise<unknown> => (await Host.findById(hostId).orFail().lean()).data_plane_url

  expect(await observe(hostId, report('https://127.0.0.1:9'))).toMatchObject({
    data_plane_url: 'https://127.0.0.1:9',
  })
  expect(await reached()).toBe('https://127.0.0.1:9')
  for (const lie of ['https://169.254.169.254:80', 'https://localhost:9', 'https://127.0.0.1.example:9']) {
    expect(await observe(hostId, report(lie))).toMatchObject({ data_plane_url: 'https://127.0.0.1:9' })
    expect(await reached()).toBe('https://127.0.0.1:9')
  }
})

const accepts = (over: Partial<HostReport>) => HostReport.safeParse(emptyReport(over)).success

test('a host reports a new certificate, and neither plain HTTP nor something else', async () => {
  const { certificate: data_plane_certificate } = await selfSigned()
  await observe(hostId, emptyReport({ data_plane_certificate }))
  expect(await Host.findById(hostId).lean()).toMatchObject({ data_plane_certificate })
  expect(accepts({})).toBe(true)
  expect(accepts({ data_plane_url: 'http://127.0.0.1:9' })).toBe(false)
  expect(accepts({ data_plane_certificate: 'none' })).toBe(false)
})

const keyOf = async (id: string) => (await Host.findById(id).orFail().lean()).tunnel_key

test('a host reports a key of its tunnel that no other host has', async () => {
  const { public_key: tunnel_key } = newTunnelKeys()
  await observe(hostId, emptyReport({ tunnel_key }))
  await expect(observe(takenOver, emptyReport({ tunnel_key }))).rejects.toMatchObject({
    status: 409,
    code: 'tunnel_key_taken',
  })
  expect([await keyOf(hostId), await keyOf(takenOver)]).toEqual([tunnel_key, null])

  const { public_key: another } = newTunnelKeys()
  await observe(hostId, emptyReport({ tunnel_key: another }))
  // The former one is free, and hosts without a tunnel are many.
  await observe(takenOver, emptyReport({ tunnel_key }))
  for (const id of [hostId, takenOver]) await observe(id, emptyReport())
  expect([await keyOf(hostId), await keyOf(takenOver)]).toEqual([null, null])
  for (const none of ['', 'key', `${tunnel_key}\nEndpoint = 10.0.0.1:1`])
    expect([none, accepts({ tunnel_key: none })]).toEqual([none, false])
})

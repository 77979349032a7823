import { once } from 'node:events'
import { createServer as createPlainServer } from 'node:http'
import { createServer, type ServerOptions } from 'node:https'
import type { AddressInfo, Server, Socket } from 'node:net'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { createServer as createTlsServer, type TLSSocket } from 'node:tls'
import { afterEach, beforeAll, expect, test } from '@jest/globals'
import { WebSocket } from 'ws'
import { type PinnedRequest, pinnedSocket, pinnedTls, sendPinned } from '../../lib/pinned-tls.ts'
import { makeSelfSigned, type SelfSigned } from '../../lib/self-signed.ts'
import { eventually } from '../support/eventually.ts'
import { makeAuthority } from '../support/certificates.ts'
import { openSilentProxy } from '../support/silent-proxy.ts'

// Whether a server gets anything that does not show the one certificate. Each impostor has the host's address.

let host: SelfSigned
let impostor: SelfSigned
const servers: Server[] = []
/** What servers read, decrypted. */
let heard = ''
const connections: Socket[] = []

beforeAll(async () => {
  host = await makeSelfSigned({ name: 'host.keelson.internal', years: 100 })
  impostor = await makeSelfSigned({ name: 'host.keelson.internal', years: 100 })
})
afterEach(async () => {
  for (const connection of connections.splice(0)) connection.destroy()
  for (const server of servers.splice(0)) await once(server.close(), 'close')
  heard = ''
})

async function listening(server: Server): Promise<URL> {
  servers.push(server)
  server.on('connection', (connection: Socket) => connections.push(connection))
  await once(server.listen(0, '127.0.0.1'), 'listening')
  return new URL(`https://127.0.0.1:${(server.address() as AddressInfo).port}/path?query`)
}

const listen = (connection: Socket | TLSSocket): void => {
  connection.on('data', (data: Buffer) => (heard += data.toString('latin1')))
  connection.on('error', () => {})
}
const impostors: Record<string, () => Server> = {
  'with another certificate': () => createTlsServer({ ...pinnedTls, ...pem(impostor) }, listen),
  'with the certificate, by an older TLS': () =>
    createTlsServer({ ...pem(host), maxVersion: 'TLSv1.2' }, listen),
  'without TLS': () => createPlainServer().on('connection', listen),
}
const pem = ({ certificate: cert, key }: SelfSigned) => ({ cert, key })

const secret = 'the token'
const asked = (url: URL, over: Partial<PinnedRequest> = {}): PinnedRequest => ({
  url,
  certificate: host.certificate,
  method: 'POST',
  headers: { authorization: secret },
  signal: new AbortController().signal,
  ...over,
})
async function open(url: URL): Promise<void> {
  const socket = new WebSocket(url, {
    headers: { authorization: secret },
    ...pinnedSocket(host.certificate),
  })
  await once(socket, 'open')
}

test.each(Object.entries(impostors))('a server %s gets no byte of a request', async (_, make) => {
  const url = await listening(make())
  await expect(sendPinned(asked(url))).rejects.toThrow()
  await expect(sendPinned(asked(url, { body: Readable.from(['the body']) }))).rejects.toThrow()
  await expect(open(url)).rejects.toThrow()
  expect(connections).toHaveLength(3)
  for (const connection of connections) if (!connection.destroyed) await once(connection, 'close')
  // Without TLS it hears the client's greeting.
  expect(heard).not.toContain(secret)
  expect(heard).not.toContain('path')
  expect(heard).not.toContain('the body')
})

test('a certificate that the pinned one has signed is another one', async () => {
  const authority = await makeAuthority()
  const url = await listening(
    createTlsServer({ ...pinnedTls, ...(await authority.issue(['127.0.0.1'])) }, listen),
  )
  await expect(sendPinned(asked(url, { certificate: authority.cert }))).rejects.toThrow(/another certificate/)
  expect(heard).toBe('')
})

function serve(options: ServerOptions): ReturnType<typeof createServer> {
  return createServer({ ...pinnedTls, ...options }, (request, response) => {
    void text(request).then((body) => response.end(`${request.url} ${body} ${connections.length}`))
  })
}

test('the server with the certificate gets requests over one connection, and each streamed one over its own', async () => {
  const url = await listening(serve(pem(host)))
  const send = async (over: Partial<PinnedRequest> = {}) => text(await sendPinned(asked(url, over)))
  expect(await send()).toBe('/path?query  1')
  expect(await send({ body: Buffer.from('bytes') })).toBe('/path?query bytes 1')
  expect(await send({ body: Readable.from(['a', 'b']) })).toBe('/path?query ab 2')
  expect(await send({ body: Readable.from(['c']) })).toBe('/path?query c 3')
})

test('a request goes to another connection when the server closes a kept one, and no request to a third', async () => {
  const does = ['answers', 'closes', 'answers', 'closes']
  const server = createServer({ ...pinnedTls, ...pem(host) }, (request, response) => {
    if (does.shift() === 'answers') response.end('answer')
    else request.socket.destroy()
  })
  const url = await listening(server)
  const send = async (over: Partial<PinnedRequest> = {}) => text(await sendPinned(asked(url, over)))
  expect(await send()).toBe('answer')
  expect(await send({ body: Buffer.from('bytes') })).toBe('answer')
  expect(connections).toHaveLength(2)
  await expect(send()).rejects.toMatchObject({ code: 'ECONNRESET' })
  expect(connections).toHaveLength(3)
})

test('a connection that was opened for one certificate serves no request for another', async () => {
  const server = serve(pem(host))
  const url = await listening(server)
  await text(await sendPinned(asked(url)))
  await expect(sendPinned(asked(url, { certificate: impostor.certificate }))).rejects.toThrow()
  server.setSecureContext({ ...pinnedTls, ...pem(impostor) })
  expect(await text(await sendPinned(asked(url, { certificate: impostor.certificate })))).toBe(
    '/path?query  3',
  )
})

test('a request ends when its signal does: before there is a connection, and while the answer is read', async () => {
  const silent = await listening(
    createTlsServer({ ...pinnedTls, ...pem(host) }, listen).on('connection', mute),
  )
  const late = new AbortController()
  const waiting = sendPinned(asked(silent, { signal: late.signal }))
  await once(servers[0] as Server, 'connection')
  late.abort()
  await expect(waiting).rejects.toThrow(/abort/i)

  const endless = createServer({ ...pinnedTls, ...pem(host) }, (_request, response) => {
    response.write('the beginning')
  })
  const reading = new AbortController()
  const answer = await sendPinned(asked(await listening(endless), { signal: reading.signal }))
  await once(answer, 'readable')
  reading.abort()
  await expect(text(answer)).rejects.toMatchObject({ name: 'AbortError' })
  await eventually(() => connections.at(-1)?.destroyed)
})

test('a request over a kept connection ends when the network drops its packets', async () => {
  const url = await listening(serve(pem(host)))
  const proxy = await openSilentProxy(Number(url.port))
  url.port = String(proxy.port)
  expect(await text(await sendPinned(asked(url)))).toBe('/path?query  1')
  proxy.silence()
  const begun = performance.now()
  await expect(sendPinned(asked(url))).rejects.toThrow('TLS handshake')
  console.log(`ended after ${Math.round(performance.now() - begun)} ms`)
  await proxy.close()
})

test('a request waits for a server that takes connections and answers late', async () => {
  const slow = createServer({ ...pinnedTls, ...pem(host) }, (_request, response) => {
    void eventually(() => connections.length > 2).then(() => response.end('late'))
  })
  expect(await text(await sendPinned(asked(await listening(slow))))).toBe('late')
})

test('an answer that breaks off is an error, also for who reads it later', async () => {
  const breaking = createServer({ ...pinnedTls, ...pem(host) }, (_request, response) => {
    response.write('the beginning', () => response.destroy())
  })
  const answer = await sendPinned(asked(await listening(breaking)))
  await eventually(() => answer.destroyed)
  await expect(text(answer)).rejects.toMatchObject({ code: 'ECONNRESET' })
})

const mute = (connection: Socket): void => void connection.pause()

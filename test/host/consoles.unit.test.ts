import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { PassThrough } from 'node:stream'
import { afterEach, beforeEach, expect, test } from '@jest/globals'
import { WebSocket } from 'ws'
import type { Terminal } from '../../drivers/containers.ts'
import { makeLogger } from '../../lib/log.ts'
import { makeWebSockets } from '../../lib/websockets.ts'
import { type Consoles, makeConsoles } from '../../worker/host/consoles.ts'
import { eventually } from '../support/eventually.ts'

// A host that stops waits for no client and no command of a tenant.

let server: Server
let consoles: Consoles
let terminal: Terminal & { stream: PassThrough }
/** Whether the command ends when its terminal is gone. */
let ends: boolean
const clients: WebSocket[] = []

beforeEach(async () => {
  ends = true
  const sockets = makeWebSockets(() => true)
  terminal = {
    stream: new PassThrough(),
    resize: async () => {},
    exitCode: async () => 0,
    close: () => (ends ? Promise.resolve() : new Promise(() => {})),
  }
  const engine = { exec: async () => terminal }
  consoles = makeConsoles({ engine, sockets, log: makeLogger('host', 'silent') })
  const handler = (request: IncomingMessage, response: ServerResponse): void =>
    void consoles
      .open('one', { command: ['sh'], cols: 80, rows: 24 }, request, response)
      .catch(() => response.writeHead(503).end())
  server = createServer(sockets.serverOptions, handler)
  sockets.attach(server, handler)
  await once(server.listen(0, '127.0.0.1'), 'listening')
})
afterEach(() => {
  for (const client of clients.splice(0)) client.terminate()
  server.close()
})

async function open(): Promise<WebSocket> {
  const client = new WebSocket(`ws://127.0.0.1:${(server.address() as AddressInfo).port}`)
  clients.push(client)
  await once(client, 'open')
  return client
}
const closeOf = async (client: WebSocket): Promise<[number, string]> => {
  const [code, reason] = (await once(client, 'close')) as [number, Buffer]
  return [code, String(reason)]
}

test('a client is told at once that the host stops, and its terminal is gone', async () => {
  const closed = closeOf(await open())
  await consoles.close()
  expect(await closed).toEqual([1001, 'the host is stopping'])
  expect(terminal.stream.destroyed).toBe(true)
})

test('a host stops though a client does not read', async () => {
  const client = await open()
  client.pause()
  terminal.stream.write(Buffer.alloc(16 * 1024 ** 2))
  await eventually(() => terminal.stream.readableLength === 0) // it is on its way
  await consoles.close()
  expect(terminal.stream.destroyed).toBe(true)
}, 60_000) // less than a slow reader has to read what was sent before a close

test('a host stops though the command takes no input', async () => {
  const client = await open()
  for (let i = 0; i < 100; i++) client.send(Buffer.alloc(64 * 1024))
  const closed = closeOf(client)
  await consoles.close()
  expect((await closed)[0]).toBe(1001)
})

test('a host stops though a command does not end', async () => {
  ends = false
  const closed = closeOf(await open())
  await consoles.close() // would never end
  expect(await closed).toEqual([1001, 'the host is stopping'])
})

test('a host that stops opens no console', async () => {
  await consoles.close()
  await expect(open()).rejects.toThrow('503')
})

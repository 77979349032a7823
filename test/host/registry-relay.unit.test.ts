import { once } from 'node:events'
import { createServer, get, type IncomingMessage, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type { RegistrySpec } from '../../drivers/image-builds.ts'
import { makeRegistryRelay } from '../../worker/host/registry-relay.ts'

const full = 'no space left on device'
const spec: RegistrySpec = { image: '', ip_address: '', port: 0, users: [] }
const portOf = (server: Server): number => (server.address() as AddressInfo).port

/** A registry whose disk is full, and the host before it. */
let registry: Server
let host: Server
beforeAll(async () => {
  registry = createServer((_, response) => {
    response.writeHead(500, { 'content-length': full.length }).end(full)
  })
  const relay = makeRegistryRelay({
    registries: {
      ensure: async () => {},
      // It answers after the first bytes, and reads no others.
      async relay(_machine, _spec, { body }) {
        body.pause()
        await once(body, 'readable')
        body.read()
        const [answer] = (await once(get({ port: portOf(registry) }), 'response')) as [IncomingMessage]
        return answer
      },
    },
    registry: async () => spec,
  })
  host = createServer((asked, response) => {
    relay({ machineId: 'm', deployServerId: 'd' }, { path: '/v2/', pushes: null }, asked, response).catch(
      () => response.destroy(),
    )
  })
  for (const server of [registry, host]) await once(server.listen(0, '127.0.0.1'), 'listening')
})
afterAll(() => {
  for (const server of [registry, host]) server.close()
})

test('a sender has the answer that comes before all is sent', async () => {
  const layer = Buffer.alloc(16 * 1024 ** 2)
  for (let count = 0; count < 20; count++) {
    const sent = request({ port: portOf(host), method: 'PATCH', agent: false })
    sent.on('error', () => {}) // with the answer it stops sending
    sent.end(layer)
    const [answer] = (await once(sent, 'response')) as [IncomingMessage]
    expect([answer.statusCode, await text(answer)]).toEqual([500, full])
  }
})

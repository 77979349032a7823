import { once } from 'node:events'
import { createServer, request, type Server } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer } from 'node:stream/consumers'
import { afterEach, expect, test } from '@jest/globals'
import { limitBodies } from '../../api/slow-bodies.ts'

let server: Server
afterEach(() => {
  server.close()
  server.closeAllConnections()
})

async function listen(limits: { wholeWithinMs: number; silentMs: number }): Promise<number> {
  const handler = limitBodies((asked, response) => {
    buffer(asked).then(
      (bytes) => response.end(`${bytes.length}`),
      () => response.destroy(),
    )
  }, limits)
  server = createServer(handler).listen(0, '127.0.0.1')
  await once(server, 'listening')
  return (server.address() as AddressInfo).port
}

/** The status of a request whose body comes byte by byte; with `bytes` null, never ends. */
function drip(port: number, path: string, bytes: number | null): Promise<number> {
  return new Promise((resolve, reject) => {
    const sent = request({ port, path, method: 'PATCH', host: '127.0.0.1', agent: false }, (response) => {
      clearInterval(timer)
      response.resume()
      resolve(response.statusCode ?? 0)
    })
    let count = 0
    sent.write('x')
    const timer = setInterval(() => {
      if (bytes === null) return
      if (++count < bytes) sent.write('x')
      else {
        clearInterval(timer)
        sent.end()
      }
    }, 50)
    sent.on('error', reject)
  })
}

const never = 600_000

test('a body that is not whole in time is refused', async () => {
  const port = await listen({ wholeWithinMs: 300, silentMs: never })
  expect(await drip(port, '/api/v1/containers', null)).toBe(408)
})

test('the bytes of an image or an archive may come as long as they come', async () => {
  const port = await listen({ wholeWithinMs: 1, silentMs: never })
  for (const path of ['/v2/0123456789ab/shop/blobs/uploads/1', '/api/v1/uploads/1'])
    expect(await drip(port, path, 5)).toBe(200)
})

test('the bytes of an image that no longer come are not waited for', async () => {
  const port = await listen({ wholeWithinMs: never, silentMs: 300 })
  expect(await drip(port, '/v2/0123456789ab/shop/blobs/uploads/1', null)).toBe(408)
})

import { once } from 'node:events'
import { createServer, type RequestListener, type ServerResponse } from 'node:http'
import type { AddressInfo, Socket } from 'node:net'
import { text } from 'node:stream/consumers'
import { afterEach, describe, expect, test } from '@jest/globals'
import { makeOutbound, type Outbound, type OutboundStreamRequest } from '../../lib/outbound.ts'

// The guarded request whose body is read as it comes, against servers on this machine alone.

const refused = { code: 'address_not_allowed', message: 'The URL does not lead to a public address' }
const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0)) await close()
})

const asked = (more: Partial<OutboundStreamRequest> = {}): OutboundStreamRequest => ({
  method: 'POST',
  headers: {},
  body: 'question',
  headWithinMs: 60_000,
  pieceWithinMs: 60_000,
  signal: new AbortController().signal,
  ...more,
})

async function serving(
  answer: RequestListener,
): Promise<{ url: string; allowed: string; sockets: Socket[] }> {
  const sockets: Socket[] = []
  const server = createServer(answer).on('connection', (socket) => sockets.push(socket))
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  closing.push(() => {
    server.close()
    server.closeAllConnections()
  })
  const { port } = server.address() as AddressInfo
  return { url: `http://127.0.0.1:${port}/`, allowed: `127.0.0.1:${port}`, sockets }
}

function outbound(of: Parameters<typeof makeOutbound>[0]): Outbound {
  const made = makeOutbound(of)
  closing.push(() => made.close())
  return made
}

test('a body passes as it comes, on a connection that is kept for the next', async () => {
  const responses: ServerResponse[] = []
  const { url, allowed, sockets } = await serving((request, response) => {
    responses.push(response)
    request.pipe(response, { end: false })
  })
  const one = outbound({ allowed: [allowed] })
  for (const body of ['first', 'second', 'third', 'fourth']) {
    const answer = await one.stream(url, asked({ body }))
    const pieces: string[] = []
    for await (const piece of answer.body as AsyncIterable<Buffer>) {
      pieces.push(piece.toString())
      // Only now: the first piece was here before the last was written.
      responses.at(-1)?.end(': answer')
    }
    expect(pieces.join('')).toBe(`${body}: answer`)
  }
  // The second request may come before the first connection is free again.
  expect(sockets.length).toBeLessThanOrEqual(2)
})

describe('a stream is refused', () => {
  test.each(['http://127.0.0.1:1/', 'http://[::1]:1/', 'http://169.254.169.254/', 'http://10.0.0.1/'])(
    'from %s',
    async (url) => {
      await expect(outbound({}).stream(url, asked())).rejects.toMatchObject(refused)
    },
  )

  test('from a name that leads to a private address', async () => {
    const one = outbound({ lookup: async () => [{ address: '127.0.0.1', family: 4 }] })
    await expect(one.stream('http://name.example/', asked())).rejects.toMatchObject(refused)
  })

  test('from what is no URL of the web', async () => {
    await expect(outbound({}).stream('file:///etc/passwd', asked())).rejects.toMatchObject({
      code: 'no_answer',
    })
  })
})

describe('no answer', () => {
  test('in time is told apart from no connection', async () => {
    const { url, allowed } = await serving(() => {})
    const one = outbound({ allowed: [allowed, '127.0.0.1:1'] })
    const silent = one.stream(url, asked({ headWithinMs: 300 }))
    await expect(silent).rejects.toMatchObject({ code: 'no_answer', timedOut: true })
    const closed = one.stream('http://127.0.0.1:1/', asked())
    await expect(closed).rejects.toMatchObject({ timedOut: false, message: 'It refuses connections' })
  })

  test('is waited for no longer once its caller stops it', async () => {
    const { url, allowed } = await serving(() => {})
    const stop = new AbortController()
    const silent = outbound({ allowed: [allowed] }).stream(url, asked({ signal: stop.signal }))
    stop.abort()
    await expect(silent).rejects.toMatchObject({ code: 'no_answer', timedOut: true })
  })
})

test('a body that stops coming ends in an error', async () => {
  const { url, allowed } = await serving((_, response) => void response.write('half'))
  const one = outbound({ allowed: [allowed] })
  const { body } = await one.stream(url, asked({ pieceWithinMs: 300 }))
  await expect(text(body)).rejects.toThrow()
})

test('a redirect is an answer, and is not followed', async () => {
  const { url, allowed } = await serving(
    (_, response) => void response.writeHead(307, { location: 'http://169.254.169.254/' }).end(),
  )
  const { status, body } = await outbound({ allowed: [allowed] }).stream(url, asked())
  body.resume()
  expect(status).toBe(307)
})

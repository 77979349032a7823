import { once } from 'node:events'
import { createServer, request } from 'node:http'
import { type AddressInfo, connect, type Server } from 'node:net'
import { type Duplex, PassThrough } from 'node:stream'
import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { StreamAgent } from '../../../drivers/system/stream-agent.ts'

let server: Server
beforeAll(async () => {
  server = createServer((asked, response) => response.end(asked.url))
  await once(server.listen(0, '127.0.0.1'), 'listening')
})
afterAll(() => void server.close())

function makeAgent(kept: ConstructorParameters<typeof StreamAgent>[1]) {
  const streams: Duplex[] = []
  const agent = new StreamAgent(async () => {
    const stream = connect((server.address() as AddressInfo).port)
    streams.push(stream)
    return stream
  }, kept)
  const ask = (path: string): Promise<string> =>
    new Promise((resolve, reject) => {
      request({ agent, path })
        .on('error', reject)
        .on('response', (answer) => resolve(text(answer)))
        .end()
    })
  return { agent, streams, ask }
}

test('requests share the streams that are open', async () => {
  const { agent, streams, ask } = makeAgent({ keepAlive: true, streams: 3 })
  await Promise.all(['/a', '/b', '/c'].map(ask))
  const paths = Array.from({ length: 20 }, (_, index) => `/${index}`)
  expect(await Promise.all(paths.map(ask))).toEqual(paths)
  expect(streams).toHaveLength(3)
  agent.destroy()
})

test('a stream ends when it had no request for its time', async () => {
  const { agent, streams, ask } = makeAgent({ keepAlive: true, idleMs: 100 })
  for (let count = 0; count < 5; count++) await ask('/')
  const [stream] = streams
  if (stream && !stream.destroyed) await once(stream, 'close')
  expect(await ask('/later')).toBe('/later')
  expect(streams.length).toBeGreaterThan(1)
  agent.destroy()
})

test('an agent that keeps nothing opens a stream for each request', async () => {
  const { streams, ask } = makeAgent({})
  await ask('/')
  await ask('/')
  expect(streams).toHaveLength(2)
})

test.each([
  { kept: true, error: new Error('refused'), says: 'refused' },
  { kept: false, error: new Error('refused'), says: 'refused' },
  { kept: true, error: undefined, says: 'The stream has closed' },
])(
  'a stream that closes before its request has it fails the request: $says',
  async ({ kept, error, says }) => {
    const connectTo = async (): Promise<Duplex> => {
      const stream = new PassThrough()
      const closed = new Promise((resolve) => stream.once('error', () => {}).once('close', resolve))
      stream.destroy(error)
      await closed
      return stream
    }
    const agent = new StreamAgent(connectTo, { keepAlive: kept })
    const [failure] = (await once(request({ agent }).end(), 'error')) as [Error]
    expect(failure.message).toBe(says)
  },
)

import { once } from 'node:events'
import { connect, createServer } from 'node:net'
import type { Duplex } from 'node:stream'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { EngineUnavailable, InstanceNotFound, InstanceNotRunning } from '../../drivers/errors.ts'
import { eventually } from '../support/eventually.ts'
import { documentOf, embedder, spec } from '../support/rag/samples.ts'
import { ask, openThroughHost, type RelayedStore } from '../support/rag/through-host.ts'

// The relay of a host, before a store whose container is this machine. test/rag/conformance.unit.test.ts tests all calls.

let relayed: RelayedStore
beforeAll(async () => {
  relayed = await openThroughHost()
  await relayed.store.createCollection('c', spec)
})
afterAll(() => relayed.close())

const started = (): number => relayed.pipes.length
const running = (): number =>
  relayed.pipes.filter(({ exitCode, signalCode }) => exitCode === null && signalCode === null).length

test('calls in turn share one stream', async () => {
  await relayed.store.stats('c')
  const before = started()
  for (let count = 0; count < 5; count++) await relayed.store.stats('c')
  expect(started()).toBe(before)
})

test('calls at once have four streams, and wait for each other', async () => {
  const allAreSent = Promise.withResolvers<void>()
  let streams = 0
  const other: RelayedStore = await openThroughHost({
    async pipe() {
      streams++
      await allAreSent.promise
      return connect(other.served.socket)
    },
  })
  const calls = Array.from({ length: 20 }, () => other.store.health())
  await eventually(() => streams === 4)
  allAreSent.resolve()
  await Promise.all(calls)
  expect(streams).toBe(4)
  await other.close()
})

test('an answer of the store says that it is one, and a refusal of the host does not', async () => {
  const found = await ask(relayed.port, 'GET', '/collections/other')
  expect(found).toMatchObject({ status: 404, headers: { 'keelson-store': 'answers' } })
  expect(JSON.parse(found.said)).toMatchObject({ code: 'collection_not_found' })
  const refused = await openThroughHost({ pipe: () => Promise.reject(new InstanceNotFound('x')) })
  const { status, headers } = await ask(refused.port, 'GET', '/collections/c')
  expect([status, headers['keelson-store']]).toEqual([503, undefined])
  await refused.close()
})

describe('a call is unavailable, in words,', () => {
  const cases: [string, () => Promise<Duplex>, RegExp][] = [
    ['without the container', () => Promise.reject(new InstanceNotFound('x')), /is not on its host/],
    ['while the container does not run', () => Promise.reject(new InstanceNotRunning('x')), /is not running/],
    ['while the engine does not answer', () => Promise.reject(new EngineUnavailable('x')), /does not answer/],
  ]
  test.each(cases)('%s', async (_, pipe, words) => {
    const other = await openThroughHost({ pipe })
    const { status, said } = await ask(other.port, 'GET', '/collections/c')
    expect(status).toBe(503)
    expect(said).toMatch(words)
    // Also for one who still sends.
    expect(await ask(other.port, 'PUT', '/collections/c', 'x'.repeat(8 * 1024 ** 2))).toMatchObject({
      status: 503,
    })
    await other.close()
  })

  test('of what is no store', async () => {
    const server = createServer((socket) => socket.end('exec failed: no such file\r\n'))
    await once(server.listen(0, '127.0.0.1'), 'listening')
    const { port } = server.address() as { port: number }
    const other = await openThroughHost({ pipe: async () => connect(port) })
    expect(await ask(other.port, 'GET', '/collections/c')).toMatchObject({ status: 503 })
    await other.close()
    server.close()
  })
})

test('a call after the store was killed gets its answer', async () => {
  await Promise.all([relayed.store.stats('c'), relayed.store.stats('c')])
  await relayed.served.kill()
  expect(await relayed.store.stats('c')).toMatchObject({ name: 'c' })
  await eventually(async () => running() <= 1) // the others have noticed
})

test('a short call on a stream that ended at this moment is sent again', async () => {
  await relayed.store.stats('c')
  // The relay has not heard of it when the call comes.
  for (const pipe of relayed.pipes) pipe.kill('SIGKILL')
  expect(await relayed.store.search('c', { mode: 'text', k: 1, text: 'fox' })).toMatchObject({ hits: [] })
})

test('a long document goes through, and so does the refusal of one that is too long', async () => {
  const { chunks, ...document } = documentOf(
    'long',
    1,
    Array.from({ length: 4_000 }, (_, index) => `${index}`),
  )
  const long = chunks.map((chunk) => ({ ...chunk, text: 'long '.repeat(200) }))
  expect(await relayed.store.replaceDocument('c', embedder, { ...document, chunks: long })).toMatchObject({
    outcome: 'replaced',
    chunks: 4_000,
  })
  const most = 64 * 1024 ** 2
  expect(await ask(relayed.port, 'PUT', '/collections/c/documents/d', ' '.repeat(most + 1))).toMatchObject({
    status: 413,
  })
})

test('a caller that goes away ends its call, and no other', async () => {
  const other = await openThroughHost()
  await other.store.createCollection('c', spec)
  const sent = connect(other.port)
  sent.write('PUT /collections/c/documents/d HTTP/1.1\r\nhost: x\r\ncontent-length: 50000000\r\n\r\n')
  sent.write(' '.repeat(2_000_000))
  await eventually(async () => other.pipes.length >= 1)
  expect(await other.store.stats('c')).toMatchObject({ documents: 0 })
  sent.destroy()
  const live = (): number => other.pipes.filter(({ exitCode }) => exitCode === null).length
  await eventually(async () => live() === 1)
  expect(await other.store.stats('c')).toMatchObject({ documents: 0 })
  await other.close()
})

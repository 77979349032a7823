import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import type { Duplex } from 'node:stream'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import type Docker from 'dockerode'
import { withEngine } from '../../../drivers/swarm/dial.ts'

let engine: Server
beforeAll(async () => {
  engine = createServer((_, response) => response.end('{"Version":"1"}'))
  await once(engine.listen(0, '127.0.0.1'), 'listening')
})
afterAll(() => void engine.close())

function makeDial() {
  const streams: Duplex[] = []
  const dial = async (): Promise<Duplex> => {
    const stream = connect({ port: (engine.address() as AddressInfo).port, allowHalfOpen: true })
    streams.push(stream)
    return stream
  }
  const ask = (machine = 'one') => withEngine(dial, machine, (docker: Docker) => docker.version())
  return { dial, streams, ask }
}

test('works in a machine share a stream in turn', async () => {
  const { streams, ask } = makeDial()
  for (let count = 0; count < 5; count++) expect(await ask()).toEqual({ Version: '1' })
  expect(streams).toHaveLength(1)
  await ask('two')
  expect(streams).toHaveLength(2)
})

test('works at once have a stream each, and one is kept', async () => {
  const { streams, ask } = makeDial()
  await Promise.all([ask(), ask(), ask()])
  expect(streams).toHaveLength(3)
  await ask()
  expect(streams.filter(({ destroyed }) => !destroyed)).toHaveLength(1)
})

test('work that fails closes its stream', async () => {
  const { dial, streams, ask } = makeDial()
  await ask()
  const failing = withEngine(dial, 'one', async (docker: Docker) => {
    await docker.version()
    throw new Error('no')
  })
  await expect(failing).rejects.toThrow('no')
  expect(streams.map(({ destroyed }) => destroyed)).toEqual([true])
  await ask()
  expect(streams).toHaveLength(2)
})

test('a stream that the machine has ended is not used again', async () => {
  const { streams, ask } = makeDial()
  await ask()
  const [stream] = streams
  engine.closeAllConnections()
  if (stream && !stream.destroyed) await once(stream, 'close')
  expect(await ask()).toEqual({ Version: '1' })
  expect(streams).toHaveLength(2)
})

test('a stream without work is closed', async () => {
  const { streams, ask } = makeDial()
  await ask()
  const [stream] = streams
  if (stream && !stream.destroyed) await once(stream, 'close')
  expect(streams).toHaveLength(1)
})

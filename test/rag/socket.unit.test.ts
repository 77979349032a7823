import { once } from 'node:events'
import { mkdtemp, rm, stat } from 'node:fs/promises'
import { request } from 'node:http'
import { createServer } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { buffer, text } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { HttpsClient } from '../../images/rag/https-client.ts'
import { readSettings } from '../../images/rag/settings.ts'
import { makeSelfSigned } from '../../lib/self-signed.ts'
import { spec } from '../support/rag/samples.ts'
import { openServer, type ServedStore, startProcess } from '../support/rag/servers.ts'
import { startPipe } from '../support/rag/through-host.ts'

// The way into a store from its own container: the socket, the program that joins to it, and secrets in the environment.

let folder: string
let served: ServedStore
beforeAll(async () => {
  folder = await mkdtemp(join(tmpdir(), 'keelson-rag-'))
  served = await openServer()
  await served.store.createCollection('c', spec)
})
afterAll(async () => {
  await served.close()
  await rm(folder, { recursive: true })
})

const statusOf = (socketPath: string, path: string): Promise<number> =>
  new Promise((resolve, reject) => {
    const sent = request({ socketPath, path, agent: false })
    sent.on('error', reject)
    sent.on('response', (response) => {
      response.resume()
      resolve(response.statusCode ?? 0)
    })
    sent.end()
  })

test('the socket serves without a token, to the user of the store alone', async () => {
  expect(await statusOf(served.socket, '/collections/c')).toBe(200)
  expect(await statusOf(served.socket, '/collections/other')).toBe(404)
  expect((await stat(served.socket)).mode & 0o777).toBe(0o600)
})

test('a store whose predecessor was killed has the socket', async () => {
  await served.kill()
  expect(await statusOf(served.socket, '/collections/c')).toBe(200)
})

test('a store that ends leaves no socket', async () => {
  const own = await openServer()
  await own.store.health() // it has begun to listen for signals
  expect(await own.stop()).toBe(0)
  await expect(stat(own.socket)).rejects.toMatchObject({ code: 'ENOENT' })
  await own.close()
})

describe('the program that joins a stream to the socket', () => {
  const asked = 'GET /health HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n'

  test('ends with the answer', async () => {
    const { stdin, stdout } = startPipe(served.socket)
    stdin.write(asked)
    expect(await text(stdout)).toMatch(/^HTTP\/1.1 200 OK[^]*"ready":true/)
  })

  test('brings what comes after the end of its input, all of it', async () => {
    const path = join(folder, 'late')
    const late = Buffer.alloc(5_000_000, 7)
    const server = createServer({ allowHalfOpen: true }, (socket) => {
      void buffer(socket).then((given) => socket.end(Buffer.concat([given, late])))
    })
    await once(server.listen(path), 'listening')
    const pipe = startPipe(path)
    const ended = once(pipe, 'exit')
    pipe.stdin.end('given')
    const all = await buffer(pipe.stdout)
    expect(all.equals(Buffer.concat([Buffer.from('given'), late]))).toBe(true)
    expect(await ended).toEqual([0, null])
    server.close()
  })

  test('ends when its input ends', async () => {
    const pipe = startPipe(served.socket)
    const ended = once(pipe, 'exit')
    pipe.stdin.end()
    expect(await ended).toEqual([0, null])
  })

  test('ends when the store ends', async () => {
    const own = await openServer()
    const pipe = startPipe(own.socket)
    pipe.stdin.write(asked.replace('close', 'keep-alive'))
    await once(pipe.stdout, 'data')
    const ended = once(pipe, 'exit')
    await own.close()
    await ended
  })

  test('says that there is no store', async () => {
    const pipe = startPipe(join(folder, 'none'))
    const ended = once(pipe, 'exit')
    expect(await text(pipe.stderr)).toMatch(/^no store: .*ENOENT/)
    expect(await ended).toEqual([1, null])
  })
})

describe('secrets in the environment', () => {
  test('are taken out of it', () => {
    const env = { RAG_TOKEN: 't'.repeat(32), RAG_TLS_CERT: 'cert', RAG_TLS_KEY: 'key', RAG_HOST: '10.0.0.5' }
    const { secrets } = readSettings(env)
    expect(secrets()).toEqual({ token: 't'.repeat(32), tls: { cert: 'cert', key: 'key' } })
    expect(env).toEqual({ RAG_HOST: '10.0.0.5' })
  })

  test('are enough for a store with TLS at an address of a subnet', async () => {
    const { certificate, key } = await makeSelfSigned({ name: 'localhost', years: 1 })
    const { child, port } = await startProcess({
      RAG_FOLDER: join(folder, 'store'),
      RAG_PORT: '0',
      RAG_HOST: '0.0.0.0',
      RAG_TOKEN: 't'.repeat(32),
      RAG_TLS_CERT: certificate,
      RAG_TLS_KEY: key,
    })
    const client = new HttpsClient({
      url: `https://localhost:${port}`,
      token: 't'.repeat(32),
      ca: certificate,
      timeoutMs: 20_000,
    })
    expect(await client.createCollection('c', spec)).toMatchObject({ name: 'c' })
    client.close()
    child.kill('SIGKILL')
  })
})

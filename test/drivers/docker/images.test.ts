import { mkdtemp, rm } from 'node:fs/promises'
import { createServer as createHttpServer } from 'node:http'
import { createServer, type Server } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, expect, test } from '@jest/globals'
import { makeHostImages } from '../../../drivers/docker/host-images.ts'
import { docker, dockerHost, engine } from '../../support/containers.ts'

let registry: Server | undefined
afterEach(() => {
  registry?.close()
})

test('an image that the engine has is not pulled', async () => {
  const { Id } = await docker.getImage('busybox').inspect()
  const { image_digest } = await engine.pull('busybox')
  expect(await engine.pull('busybox', { digest: image_digest })).toEqual({ image_digest })
  expect(await engine.pull('somewhere.invalid/busybox', { digest: Id })).toEqual({ image_digest: Id })
})

test('a registry without the image, or without access to it, is a refusal', async () => {
  registry = createHttpServer((request, response) => {
    response.statusCode = request.url === '/v2/' ? 200 : 404
    response.end(JSON.stringify({ errors: [{ code: 'MANIFEST_UNKNOWN', message: 'manifest unknown' }] }))
  })
  const image = await listening(registry)
  await expect(engine.pull(image)).rejects.toMatchObject({
    code: 'image_not_found',
    permanent: true,
    message: wordsFor(image),
  })
})

test('a registry that accepts the connection and never answers is given up within 20 seconds', async () => {
  registry = createServer((socket) => void socket.unref())
  const image = await listening(registry)
  const begun = Date.now()
  await expect(engine.pull(image)).rejects.toMatchObject({
    code: 'image_not_found',
    message: wordsFor(image),
  })
  expect(Date.now() - begun).toBeLessThan(20_000)
})

test('a registry that the host may not ask gets no connection, and the refusal says the same', async () => {
  let connections = 0
  registry = createServer((socket) => {
    connections++
    socket.destroy()
  })
  const image = await listening(registry)
  const asked: string[] = []
  const folder = await mkdtemp(join(tmpdir(), 'keelson-images-'))
  const limits = { mostBytes: Infinity, freeBytes: 0, unusedMs: Infinity }
  const guarded = makeHostImages({
    dockerHost,
    folder,
    ...limits,
    async mayAsk(reference) {
      asked.push(reference)
      return false
    },
  })
  await expect(guarded.pull(image)).rejects.toMatchObject({
    code: 'image_not_found',
    permanent: true,
    message: wordsFor(image),
  })
  const { digest } = await guarded.pull('busybox')
  expect({ image_digest: digest }).toEqual(await engine.pull('busybox'))
  expect(asked).toEqual([image]) // what the engine has needs no registry
  expect(connections).toBe(0)
  await rm(folder, { recursive: true })
})

test('a cancelled pull ends at once', async () => {
  registry = createServer((socket) => void socket.unref())
  const image = await listening(registry)
  const off = new AbortController()
  const pulling = engine.pull(image, { signal: off.signal })
  off.abort(new Error('called off'))
  await expect(pulling).rejects.toThrow('called off')
})

test.each(['UPPER', 'two words', '../etc', 'a//b', ''])('the image name %j is refused', async (name) => {
  await expect(engine.pull(name)).rejects.toMatchObject({ code: 'image_not_found' })
})

/** The same for all: what a private address does is not told. */
const wordsFor = (image: string): string =>
  `There is no image ${image}, access to it is denied, or its registry does not answer`

async function listening(server: Server): Promise<string> {
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve))
  const address = server.address()
  return `127.0.0.1:${typeof address === 'object' ? address?.port : ''}/some/image:1`
}

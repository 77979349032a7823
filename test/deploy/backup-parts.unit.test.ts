import { createHash, randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { buffer, text } from 'node:stream/consumers'
import { zstdCompressSync } from 'node:zlib'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { inParts } from '../../activities/host/backup-counts.ts'
import { makeCheck, makeDigest } from '../../activities/host/backup-digest.ts'
import { lengthOf, partBytes, sealPart, unsealPart } from '../../lib/backup-protocol.ts'
import { parseKeyRing, seal, unseal } from '../../lib/seal.ts'
import { exchange } from '../../worker/host/large-bodies.ts'

// Parts of a copy are pieces from the engine to the socket: nothing joins them.

/** The same bytes in pieces of these lengths, in turn. */
function cut(bytes: Buffer, lengths: number[]): Buffer[] {
  const pieces: Buffer[] = []
  for (let at = 0; at < bytes.length; ) {
    const length = lengths[pieces.length % lengths.length] ?? 1
    pieces.push(bytes.subarray(at, at + length))
    at += length
  }
  return pieces
}

const hashOf = (bytes: Buffer): string => createHash('sha256').update(bytes).digest('hex')

async function* streamed(pieces: Buffer[]): AsyncGenerator<Buffer> {
  yield* pieces
}

test.each([
  ['smaller than a part', 3 * partBytes + 5, [65_536, 1, 4_000]],
  ['larger than several parts', 3 * partBytes + 5, [2 * partBytes + 3]],
  ['that end with a part', 2 * partBytes, [65_536]],
  ['none', 0, [1]],
])('a copy in chunks %s has full parts, and the rest in the last', async (_, length, lengths) => {
  const bytes = randomBytes(length)
  const parts = await Array.fromAsync(inParts(streamed(cut(bytes, lengths))))
  expect(parts.slice(0, -1).every((part) => lengthOf(part) === partBytes)).toBe(true)
  expect(parts.map(lengthOf).every((sum) => sum > 0 && sum <= partBytes)).toBe(true)
  expect(Buffer.concat(parts.flat()).equals(bytes)).toBe(true)
})

describe('a dump that passes compressed', () => {
  const dump = Buffer.from(randomBytes(1_500_000).toString('hex'))
  const compressed = zstdCompressSync(dump)

  test('has the digest of the plain one, and stays as it is', async () => {
    const [plain, inside] = [makeDigest(), makeDigest()]
    const passed = await Array.fromAsync(plain.plain(streamed(cut(dump, [65_536]))))
    expect(Buffer.concat(passed).equals(dump)).toBe(true)
    const stored = await Array.fromAsync(inside.compressed(streamed(cut(compressed, [32_768, 1]))))
    expect(Buffer.concat(stored).equals(compressed)).toBe(true)
    const digest = { bytes: dump.length, sha256: hashOf(dump) }
    expect(plain.result()).toEqual(digest)
    expect(inside.result()).toEqual(digest)
  })

  test('is refused when it was changed, and has another digest when it is cut off', async () => {
    const changed = Buffer.from(compressed)
    changed.fill(255, 0, 4)
    const { compressed: pass } = makeDigest()
    await expect(Array.fromAsync(pass(streamed(cut(changed, [32_768]))))).rejects.toThrow('Unknown frame')
    const cutOff = makeDigest()
    await Array.fromAsync(cutOff.compressed(streamed(cut(compressed.subarray(0, -9), [32_768]))))
    expect(cutOff.result().bytes).toBeLessThan(dump.length)
  })
})

describe('a copy that is read', () => {
  const dump = Buffer.from(randomBytes(300_000).toString('hex'))
  const stored = zstdCompressSync(dump)
  const written = { compressed: true, dump_bytes: dump.length, stored_sha256: hashOf(stored), sha256: null }
  const older = { ...written, stored_sha256: null, sha256: hashOf(dump) }
  const plain = { ...written, compressed: false, stored_sha256: hashOf(dump) }
  const other = hashOf(Buffer.from('other'))

  test.each([
    ['as it was written', written, stored, true],
    ['as an older host wrote it', older, stored, true],
    ['as the engine compressed it', plain, dump, true],
    ['with another digest', { ...written, stored_sha256: other }, stored, false],
    ['from an older host, with another digest', { ...older, sha256: other }, stored, false],
    ['cut off', written, stored.subarray(0, -9), false],
  ])('%s: passes as it is, and is compared', async (_, order, bytes, isAsWritten) => {
    for (const isReadOnly of [false, true]) {
      const check = makeCheck(order, { isReadOnly })
      const passed = await Array.fromAsync(check.pass(streamed(cut(bytes, [32_768, 1]))))
      expect(Buffer.concat(passed).equals(bytes)).toBe(true)
      expect(check.isAsWritten()).toBe(isAsWritten)
    }
  })

  test('only to be read is decompressed, too', async () => {
    const wrong = makeCheck({ ...written, dump_bytes: 1 }, { isReadOnly: true })
    await Array.fromAsync(wrong.pass(streamed([stored])))
    expect(wrong.isAsWritten()).toBe(false)
    const junk = randomBytes(5_000)
    const { pass } = makeCheck({ ...written, stored_sha256: hashOf(junk) }, { isReadOnly: true })
    await expect(Array.fromAsync(pass(streamed([junk])))).rejects.toThrow('Unknown frame')
  })
})

describe('a sealed part', () => {
  const key = randomBytes(32).toString('base64')
  const plain = randomBytes(100_000)
  const sealed = Buffer.concat(sealPart(key, 'copy', 3, cut(plain, [1_000, 7])))

  test.each([[[1]], [[27, 1, 5]], [[28]], [[100, 40_000]], [[200_000]]])(
    'opens from pieces of %j bytes',
    (lengths) => {
      expect(Buffer.concat(unsealPart(key, 'copy', 3, cut(sealed, lengths))).equals(plain)).toBe(true)
    },
  )

  test('does not open in another place, after a change, or cut off', () => {
    const changed = Buffer.from(sealed)
    changed[50_000] = (changed[50_000] ?? 0) ^ 1
    expect(() => unsealPart(key, 'copy', 4, [sealed])).toThrow()
    expect(() => unsealPart(key, 'other', 3, [sealed])).toThrow()
    expect(() => unsealPart(key, 'copy', 3, cut(changed, [4_096]))).toThrow()
    for (const length of [0, 5, 28, 99_000])
      expect(() => unsealPart(key, 'copy', 3, [sealed.subarray(0, length)])).toThrow()
  })

  test('is the same as what is sealed whole', () => {
    const ring = parseKeyRing(key, 'test')
    const { keyId, sealed: whole } = seal(ring, plain, 'backup-parts:copy:3')
    expect(Buffer.concat(unsealPart(key, 'copy', 3, [whole])).equals(plain)).toBe(true)
    expect(unseal(ring, keyId, sealed, 'backup-parts:copy:3').equals(plain)).toBe(true)
  })
})

/** Says how long a body is, or breaks the connection. */
async function answer(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const { length } = await buffer(request)
  if (request.url === '/cut') response.destroy()
  else if (request.url === '/broken')
    response.writeHead(200, { 'content-length': 9 }).write('half', () => response.destroy())
  else response.end(`${request.headers['content-length']} ${length}`)
}

describe('a large body', () => {
  let server: Server
  let url: URL
  beforeAll(async () => {
    server = createServer((request, response) => {
      answer(request, response).catch(() => response.destroy())
    })
    await once(server.listen(0, '127.0.0.1'), 'listening')
    url = new URL(`http://127.0.0.1:${(server.address() as AddressInfo).port}/`)
  })
  afterAll(async () => {
    server.closeAllConnections()
    await once(server.close(), 'close')
  })

  const ask = (path: string, pieces: Buffer[], signal = new AbortController().signal) =>
    exchange(new URL(path, url), { method: 'POST', headers: {}, pieces, signal })

  test('arrives in one piece', async () => {
    const pieces = cut(randomBytes(partBytes), [65_536])
    expect(await text(await ask('/', pieces))).toBe(`${partBytes} ${partBytes}`)
  })

  test('is refused when its connection ends or its time is over, and an answer that is cut off fails', async () => {
    await expect(ask('/cut', [Buffer.from('x')])).rejects.toThrow('socket hang up')
    await expect(ask('/', [Buffer.from('x')], AbortSignal.abort())).rejects.toThrow('aborted')
    await expect(text(await ask('/broken', [Buffer.from('x')]))).rejects.toThrow('aborted')
  })
})

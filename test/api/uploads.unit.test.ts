import { randomBytes } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type Server } from 'node:http'
import { type AddressInfo, connect } from 'node:net'
import { Readable } from 'node:stream'
import { text } from 'node:stream/consumers'
import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, describe, expect, test } from '@jest/globals'
import express from 'express'
import { pieces } from '../../api/pieces.ts'
import { store } from '../../api/retrieval/uploads.ts'
import { serveUploads } from '../../api/uploads.ts'
import { makeLogger } from '../../lib/log.ts'
import { partAtLeast, partBytes } from '../../models/retrieval/uploads.ts'
import { uploadAt } from '../support/clients/uploads.ts'
import { eventually } from '../support/eventually.ts'

// Contents that are sent in parts, up to where they are stored.

let server: Server | undefined
afterEach(() => {
  server?.close()
  server?.closeAllConnections()
})

/** An upload of this size, whose parts are kept in a list. */
async function upload(size_bytes: number) {
  const kept: Buffer[] = []
  const received = (): number => Buffer.concat(kept).length
  let whole = 0
  const app = express()
  serveUploads(app, {
    kinds: [
      async () => null,
      async (id, token) =>
        token === 'kup_right'
          ? {
              id,
              size_bytes,
              operation_id: null,
              isOver: id === 'over',
              offset: async () => received(),
              add: (part) =>
                store(part, async (offset, bytes) => {
                  if (offset !== received()) return false
                  kept.push(bytes)
                  return true
                }),
              noteWhole: async () => void whole++,
            }
          : null,
    ],
    ratePerSec: 1000,
    tell: async () => {},
    log: makeLogger('api', 'silent'),
  })
  server = createServer(app).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const at = `http://127.0.0.1:${(server.address() as AddressInfo).port}/api/v1/uploads`
  return {
    at,
    kept,
    received,
    whole: () => whole,
    upload: uploadAt(`${at}/one?token=kup_right`),
  }
}

const mebibyte = 1024 ** 2

describe('a document that is sent in parts', () => {
  test('is kept by parts of 8 MiB, whatever the requests are', async () => {
    const content = randomBytes(20 * mebibyte + 5)
    const { kept, whole, upload: sent } = await upload(content.length)
    expect(await sent.head()).toMatchObject({ status: 200, offset: 0, length: content.length })
    expect(await sent.add(0, content)).toMatchObject({ status: 204, offset: content.length })
    expect(kept.map(({ length }) => length)).toEqual([partBytes, partBytes, 4 * mebibyte + 5])
    expect(Buffer.concat(kept).equals(content)).toBe(true)
    expect(whole()).toBe(1)
    expect(await sent.head()).toMatchObject({ status: 200, offset: content.length })
    expect(await sent.add(content.length, Buffer.alloc(0))).toMatchObject({ status: 204 })
  })

  test('goes on where the connection broke', async () => {
    const content = randomBytes(12 * mebibyte)
    const { kept, received, upload: sent } = await upload(content.length)
    await expect(sent.add(0, content, { breakAfter: 9 * mebibyte })).rejects.toThrow()
    await eventually(async () => received() > partBytes)
    await sent.all(content)
    expect(Buffer.concat(kept).equals(content)).toBe(true)
  })

  test('needs its token, its next offset and no more bytes than it has', async () => {
    const content = randomBytes(2 * mebibyte)
    const { at, kept, upload: sent } = await upload(content.length)
    for (const wrong of ['one', 'one?token=kup_wrong', '../one?token=kup_right'])
      expect((await uploadAt(`${at}/${wrong}`).add(0, content)).status).toBe(404)
    expect((await uploadAt(`${at}/over?token=kup_right`).head()).status).toBe(410)
    expect(await sent.add(5, content)).toMatchObject({ status: 409, offset: 0 })
    expect((await sent.add(0, Buffer.concat([content, content]))).status).toBe(413)
    expect((await sent.ask('PATCH', { 'upload-offset': 0 }, content)).status).toBe(415)
    expect((await sent.ask('GET')).status).toBe(405)
    expect(kept).toEqual([])
  })

  test('says why it takes no more, also to who ends the connection with the answer', async () => {
    const { at } = await upload(2 * partBytes)
    const { hostname, port, pathname } = new URL(`${at}/over`)
    const socket = connect({ port: Number(port), host: hostname, allowHalfOpen: true })
    const head = [
      `PATCH ${pathname}?token=kup_right HTTP/1.1`,
      'Host: localhost',
      'Connection: close',
      `Content-Length: ${partBytes}`,
    ]
    socket.write(`${head.join('\r\n')}\r\n\r\n`)
    for (let sent = 0; sent < 8; sent++) {
      await delay(20)
      socket.write(Buffer.alloc(partBytes / 8))
    }
    // As a client that sends all before it reads.
    expect(await text(socket)).toMatch(/^HTTP\/1.1 410 /)
  })

  test('has no small parts but its end: the record names each', async () => {
    const content = randomBytes(partAtLeast + 10)
    const { upload: sent } = await upload(content.length)
    const answer = await sent.add(0, content.subarray(0, 1000))
    expect([answer.status, JSON.parse(answer.body)]).toMatchObject([422, { code: 'part_too_small' }])
    expect(await sent.add(0, content.subarray(0, partAtLeast))).toMatchObject({ offset: partAtLeast })
    expect(await sent.add(partAtLeast, content.subarray(partAtLeast))).toMatchObject({ status: 204 })
  })
})

async function lengths(chunks: Buffer[], size: number): Promise<number[]> {
  const found: number[] = []
  for await (const { length } of pieces(Readable.from(chunks), size)) found.push(length)
  return found
}

async function* broken() {
  yield Buffer.from('abcde')
  throw new Error('the client has left')
}

describe('pieces of a stream', () => {
  test.each([
    [[], []],
    [[4], [4]],
    [
      [3, 3, 3],
      [4, 4, 1],
    ],
    [[9], [4, 4, 1]],
    [
      [0, 8],
      [4, 4],
    ],
  ])('of %j bytes have %j', async (sizes, expected) => {
    const chunks = sizes.map((length) => Buffer.alloc(length))
    expect(await lengths(chunks, 4)).toEqual(expected)
  })

  test('come before the fault of the stream', async () => {
    const found: string[] = []
    const reading = async (): Promise<void> => {
      for await (const piece of pieces(broken(), 4)) found.push(piece.toString())
    }
    await expect(reading()).rejects.toThrow('the client has left')
    expect(found).toEqual(['abcd', 'e'])
  })
})

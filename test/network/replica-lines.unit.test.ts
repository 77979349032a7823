import { once } from 'node:events'
import type { ServerResponse } from 'node:http'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { Readable } from 'node:stream'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { accessLine, remarkOn } from '../../api/network/access-lines.ts'
import { type Kept, type Replicas, replicaLines } from '../../api/compute/observation/replica-lines.ts'
import type { WrittenAccess } from '../../lib/access-log.ts'
import { pinnedTls, sendPinned } from '../../lib/pinned-tls.ts'
import { makeSelfSigned } from '../../lib/self-signed.ts'

// Reads the lines of a host that goes away while it answers.

type Answer = (response: ServerResponse, query: URLSearchParams) => void

const timeOf = (number: number): string => `${number < 9 ? 2026 : 2999}-01-01T00:00:00.00000000${number}Z`
const written: WrittenAccess = {
  at: '1795428000.123',
  backend: 'none',
  server: '<NOSRV>',
  bytes_in: 1,
  bytes_out: 2,
  wait_ms: -1,
  connect_ms: -1,
  response_ms: -1,
  total_ms: 3,
  status: 404,
  client: '192.0.2.1',
  request_id: 'r',
  method: 'GET',
  host: '',
  path: '/',
  protocol: 'HTTP/1.1',
  retries: '0',
  end: '--',
}
const lineOf = (number: number): string =>
  `${JSON.stringify({ time: timeOf(number), line: JSON.stringify({ ...written, path: `/${number}` }) })}\n`

const asked: URLSearchParams[] = []
let answers: Answer[] = []
const { certificate, key } = await makeSelfSigned({ name: 'host.keelson.internal', years: 1 })
const server = createServer({ ...pinnedTls, cert: certificate, key }, (request, response) => {
  const { searchParams } = new URL(request.url ?? '', 'http://host')
  asked.push(searchParams)
  const answer = answers.shift()
  if (answer) answer(response, searchParams)
  else response.writeHead(200).flushHeaders()
})
let url = ''
beforeAll(async () => {
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  url = `https://127.0.0.1:${(server.address() as AddressInfo).port}`
})
afterAll(() => {
  server.closeAllConnections()
  server.close()
})
beforeEach(() => {
  asked.length = 0
})

const sendAll: Answer = (response) => response.end([1, 2, 3].map(lineOf).join(''))
/** The host is killed within its third line. */
const breakOff: Answer = (response) =>
  response.write(lineOf(1) + lineOf(2) + lineOf(3).slice(0, 9), () => response.destroy())
const breakOffBefore: Answer = (response) => {
  response.writeHead(200).flushHeaders()
  setImmediate(() => response.destroy())
}
const goOn: Answer = (response) => response.write([2, 3, 4, 9].map(lineOf).join(''))

const untilAskedTwice = () => Promise.resolve(asked.length < 2 ? ['host'] : [])

type Asked = { lines?: number; follow?: boolean }

function open(
  query: Asked,
  signal: AbortSignal,
  over: Partial<Replicas> = {},
): ReturnType<typeof replicaLines> {
  const replicas: Replicas = {
    isThere: () => Promise.resolve(true),
    names: () => Promise.resolve(['host']),
    lineOf: (host, { time, line }) => accessLine(host, time, line),
    remarkOn,
    ask(_host, { follow, since, lines }) {
      const params = new URLSearchParams({ follow: String(follow) })
      if (since) params.set('since', since)
      if (lines !== undefined) params.set('lines', String(lines))
      const asking = { method: 'GET', headers: {}, certificate, signal }
      return sendPinned({ ...asking, url: new URL(`/?${params.toString()}`, url) })
    },
    ...over,
  }
  return replicaLines(replicas, ['host'], { follow: false, ...query }, signal)
}

/** The paths of the first lines, after which the client leaves. */
async function read(first: number, query: Asked, over: Partial<Replicas> = {}): Promise<string[]> {
  const gone = new AbortController()
  const found: string[] = []
  try {
    for await (const lines of await open(query, gone.signal, over)) {
      const told = lines.map(({ text }) => JSON.parse(text) as { path?: string; missing: string })
      found.push(...told.map(({ path, missing }) => path ?? missing))
      if (found.length >= first) break
    }
  } finally {
    gone.abort()
  }
  return found
}

const tenMegabytes = (name: string): string[] =>
  Array.from({ length: 10 }, (_, at) => {
    const time = `2026-01-01T00:00:0${at}.00000000${name}Z`
    return `${JSON.stringify({ time, line: 'x'.repeat(1024 ** 2) })}\n`
  })

describe('the lines of a replica', () => {
  test('have null for what a request did not come to', () => {
    const text = JSON.stringify(written)
    expect(JSON.parse(accessLine('host', timeOf(1), text).text)).toMatchObject({
      time: timeOf(1),
      host_id: 'host',
      began_at: '2026-11-23T10:00:00.123Z',
      route_id: null,
      target_id: null,
      host: null,
      wait_ms: null,
      response_ms: null,
      status: 404,
    })
  })

  test.each(['', '{', 'null', '[]', '{"backend":1}', '{"at":"1795428000.123","backend":"none"}'])(
    'say that one is damaged: %s',
    (text) => {
      const line = accessLine('host', timeOf(1), text)
      expect(JSON.parse(line.text)).toEqual({ host_id: 'host', missing: 'an entry is damaged' })
    },
  )

  test('are what its host has', async () => {
    answers = [sendAll]
    expect(await read(4, {})).toEqual(['/1', '/2', '/3'])
  })

  test('are not taken for all when the host goes away within its answer', async () => {
    answers = [breakOff]
    await expect(read(4, {})).rejects.toMatchObject({ code: 'ECONNRESET' })
  })

  test('are followed from where the host’s answer broke off', async () => {
    answers = [breakOff, goOn]
    expect(await read(4, { follow: true })).toEqual(['/1', '/2', '/3', '/4', '/9'])
    expect(asked.map((query) => query.get('since'))).toEqual([null, '2025-12-31T23:59:55.000Z'])
  })

  test('are followed from now when the host’s answer broke off before its last line', async () => {
    answers = [breakOffBefore, goOn]
    const begun = new Date().toISOString()
    expect(await read(1, { follow: true, lines: 0 })).toEqual(['/9'])
    expect(asked.map((query) => query.get('lines'))).toEqual(['100', null])
    const since = asked[1]?.get('since') ?? ''
    expect(since >= begun && since <= new Date().toISOString()).toBe(true)
  })

  test('are read up to the last one of now before the answer to a client begins', async () => {
    const gone = new AbortController()
    let ended = false
    const late: Answer = (response) => {
      response.writeHead(200).flushHeaders()
      setTimeout(() => {
        ended = true
        response.end(lineOf(1))
      }, 100)
    }
    answers = [late]
    await open({ follow: true, lines: 0 }, gone.signal)
    expect(ended).toBe(true)
    gone.abort()
  })

  test('are not taken for the last ones when the host goes away within its answer', async () => {
    answers = [breakOff]
    await expect(read(4, { lines: 2 })).rejects.toThrow('does not answer')
  })

  test('have at most 16 MiB if the last ones are asked for, of all replicas together', async () => {
    const lines = await replicaLines(
      {
        isThere: () => Promise.resolve(true),
        names: () => Promise.resolve(['1', '2']),
        lineOf: (_, { time, line }) => ({ time, text: line }),
        remarkOn,
        ask: async (name) => Readable.from(tenMegabytes(name)),
      },
      ['1', '2'],
      { follow: false, lines: 100_000 },
      new AbortController().signal,
    )
    const times = (await Array.fromAsync(lines)).flat().map(({ time }) => time.slice(18, 20))
    expect(times).toHaveLength(16)
    expect(times.at(0)).toBe('2.')
  })

  describe('of a replica that is no more', () => {
    type Rest = ReturnType<Kept['rest']>
    const since: string[] = []

    /** Follows until the host has answered twice, and then what was kept, by one look after another. */
    function follow(first: number, looks: [numbers: number[], rest: Rest][]): Promise<string[]> {
      since.length = 0
      answers = [sendAll, (response) => response.end(lineOf(4))]
      const kept = (_name: string, from: string): Kept => {
        since.push(from)
        const [numbers, rest] = looks.shift() ?? [[], 'none']
        const lines = numbers.map((at) => ({ time: timeOf(at), text: JSON.stringify({ path: `/${at}` }) }))
        return { lines: Readable.from([lines]), rest: () => rest }
      }
      return read(first, { follow: true }, { names: untilAskedTwice, kept })
    }

    test('are followed to the last one that was kept, each once', async () => {
      const looks: [number[], Rest][] = [
        [[2, 3, 4, 5], 'later'],
        [[5, 6], 'none'],
      ]
      expect(await follow(6, looks)).toEqual(['/1', '/2', '/3', '/4', '/5', '/6'])
      expect(since).toEqual([timeOf(4), timeOf(5)])
    })

    test('are said to be missing, once, while its host is away', async () => {
      const looks: [number[], Rest][] = [
        [[], 'away'],
        [[], 'away'],
        [[5], 'none'],
      ]
      const away = expect.stringContaining('does not answer')
      expect(await follow(6, looks)).toEqual(['/1', '/2', '/3', '/4', away, '/5'])
    })
  })
})

import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { askHttp, needHeaders, needSuccess } from '../../lib/http-answers.ts'
import { makeOutbound } from '../../lib/outbound.ts'
import { requestOf } from '../../models/ai/run-http.ts'
import { listen } from '../support/mcp-servers.ts'

// The requests of `http` nodes, and the outputs that their answers become.

let server: Awaited<ReturnType<typeof listen>>
let guard: ReturnType<typeof makeOutbound>
beforeAll(async () => {
  server = await listen((request, response) => {
    const { pathname } = new URL(request.url ?? '', 'http://x')
    if (pathname === '/json')
      return response.setHeader('content-type', 'application/problem+json').end('{"a":1}')
    if (pathname === '/broken') return response.setHeader('content-type', 'application/json').end('{"a"')
    if (pathname === '/deep')
      return response
        .setHeader('content-type', 'application/json')
        .end('['.repeat(1024 ** 2) + ']'.repeat(1024 ** 2))
    if (pathname === '/large') return response.end(Buffer.alloc(8 * 1024 ** 2 + 1, 'x'))
    if (pathname === '/moved') return response.writeHead(302, { location: 'http://169.254.169.254/' }).end()
    if (pathname === '/empty') return response.writeHead(204).end()
    return pathname === '/never' ? null : response.end('plain')
  })
  guard = makeOutbound({ allowed: [`127.0.0.1:${server.port}`] })
})
afterAll(async () => {
  server.close()
  await guard.close()
})
const ask = (path: string, more: object = {}) =>
  askHttp(guard, `${server.origin}${path}`, { method: 'GET', withinMs: 60_000, ...more })

describe('an answer', () => {
  test('has a body of JSON if it says so, else a text', async () => {
    expect(await ask('/json')).toMatchObject({
      status: 200,
      headers: { 'content-type': 'application/problem+json' },
      body: { a: 1 },
    })
    expect(await ask('/')).toMatchObject({ body: 'plain' })
    expect(await ask('/empty')).toMatchObject({ status: 204, body: null })
  })

  test('that redirects is not followed', async () => {
    expect(await ask('/moved')).toMatchObject({
      status: 302,
      headers: { location: 'http://169.254.169.254/' },
    })
  })

  test.each([
    ['/broken', 'unreadable_answer', false],
    ['/large', 'too_large', true],
    ['/deep', 'too_large', true],
  ])('of %s is refused: %s', async (path, code, permanent) => {
    await expect(ask(path)).rejects.toMatchObject({ code, permanent })
  })

  test('that does not come in time may come later', async () => {
    await expect(ask('/never', { withinMs: 50 })).rejects.toMatchObject({
      code: 'no_answer_in_time',
      permanent: false,
    })
  })

  test.each(['http://127.0.0.1:1/', 'http://169.254.169.254/latest', 'http://[::1]/', 'http://localhost:1/'])(
    'of a private address is never asked for: %s',
    async (url) => {
      await expect(askHttp(guard, url, { method: 'GET', withinMs: 60_000 })).rejects.toMatchObject({
        code: 'address_not_allowed',
        permanent: true,
      })
    },
  )
})

test.each([
  [200, null],
  [302, null],
  [404, true],
  [408, false],
  [425, false],
  [429, false],
  [503, false],
])('the status %d fails for good: %s', (status, permanent) => {
  const check = () => needSuccess({ status })
  if (permanent === null) expect(check).not.toThrow()
  else expect(check).toThrow(expect.objectContaining({ code: `http_${status}`, permanent }))
})

const of = (method: 'GET' | 'POST', headers: Record<string, string>, body: string | null) =>
  requestOf({ method }, { headers, body, id: 'run/node/call' })

describe('a request', () => {
  test('has the same Idempotency-Key in each attempt, unless its author sets one', () => {
    expect(of('POST', {}, '{"a":1}')).toEqual({
      method: 'POST',
      headers: { 'content-type': 'application/json', 'idempotency-key': 'run/node/call' },
      body: '{"a":1}',
    })
    const own = { 'Idempotency-Key': 'mine', 'Content-Type': 'text/csv' }
    expect(of('POST', own, '"a,b"')).toEqual({
      method: 'POST',
      headers: { 'content-type': 'text/csv', 'idempotency-key': 'mine' },
      body: 'a,b',
    })
    expect(of('GET', {}, null)).toEqual({ method: 'GET', headers: {} })
  })

  test.each([{ Host: 'a' }, { 'Transfer-Encoding': 'chunked' }, { 'X-A': 'secret\r\nX-B: c' }])(
    'has no header of the connection, and no line within one: %j',
    (headers) => {
      const fault = (() => {
        try {
          return needHeaders(headers)
        } catch (error) {
          return error as Error
        }
      })()
      expect(fault).toMatchObject({ code: 'invalid_request', permanent: true })
      expect(String(fault)).not.toContain('secret')
    },
  )
})

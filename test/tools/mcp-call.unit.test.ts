import { afterAll, afterEach, describe, expect, test } from '@jest/globals'
import { callMcp, type McpAnswer, type McpToolCall } from '../../lib/mcp-call.ts'
import type { McpServer } from '../../lib/mcp-probe.ts'
import { makeOutbound } from '../../lib/outbound.ts'
import { makeRedactor } from '../../lib/redact.ts'
import { answerOf, answerOfHttp } from '../../models/tools/calls.ts'
import { freePort } from '../../script/lib/free-port.ts'
import { listen, type McpAnswers, mcpAnswers, openEverything } from '../support/mcp-servers.ts'

// Calls of tools of MCP servers on this machine, and the outputs that their answers become.

const closing: (() => unknown)[] = []
afterEach(async () => {
  for (const close of closing.splice(0).toReversed()) await close()
})
const guards: ReturnType<typeof makeOutbound>[] = []
afterAll(async () => {
  for (const guard of guards) await guard.close()
})

async function call(
  url: string,
  asked: Partial<McpToolCall>,
  server: Partial<McpServer> = {},
  allowed = [new URL(url).host],
): Promise<McpAnswer> {
  const guard = makeOutbound({ allowed })
  guards.push(guard)
  const usual = { name: 'echo', arguments: {}, mostBytes: 1024 ** 2, signal: new AbortController().signal }
  const its: McpServer = { url, transport: 'auto', headers: {}, redact: (value) => value, ...server }
  return callMcp(its, guard, { ...usual, ...asked })
}

async function fake(answers: McpAnswers): Promise<string> {
  const server = await listen(mcpAnswers(answers))
  closing.push(() => server.close())
  return server.origin
}

describe('a call', () => {
  test.each(['streamableHttp', 'sse'] as const)(
    'of the reference server over %s has its answer',
    async (served) => {
      const server = await openEverything(served, await freePort())
      closing.push(() => server.close())
      const { url } = server
      const echo = await call(url, { arguments: { message: 'Hi' } })
      expect(answerOf(echo)).toEqual({ output: 'Echo: Hi', is_error: false })
      const weather = await call(url, { name: 'get-structured-content', arguments: { location: 'Chicago' } })
      expect(answerOf(weather)).toMatchObject({
        output: { temperature: expect.any(Number) },
        is_error: false,
      })
      expect(answerOf(await call(url, { name: 'none' }))).toMatchObject({ is_error: true })
    },
  )

  test('that the server refuses, and one that fails, have its text without secrets', async () => {
    const secret = 'planted-secret-of-a-call'
    const redact = makeRedactor([secret])
    const refusing = await fake({ call: () => ({ error: { code: -32602, message: `No ${secret}` } }) })
    expect(answerOf(await call(refusing, {}, { redact }))).toEqual({
      output: expect.stringMatching(/No \[secret\]$/),
      is_error: true,
      lasting: true,
    })
    const content = [{ type: 'text', text: `It broke: ${secret}` }]
    const failing = await fake({ call: () => ({ result: { content, isError: true } }) })
    const answer = answerOf(await call(failing, {}, { redact }))
    expect(answer).toEqual({ output: 'It broke: [secret]', is_error: true })
  })

  test.each([
    ['large', { content: [{ type: 'text', text: 'x'.repeat(2 * 1024 ** 2) }] }],
    [
      'deep',
      { content: [], structuredContent: { deep: JSON.parse('['.repeat(100) + ']'.repeat(100)) as unknown } },
    ],
  ])('whose answer is too %s is refused', async (_, result) => {
    const url = await fake({ call: () => ({ result }) })
    await expect(call(url, {})).rejects.toMatchObject({ code: 'too_large', permanent: true })
  })

  test('ends with its signal', async () => {
    const ending = new AbortController()
    const url = await fake({
      call: async () => {
        ending.abort()
        return new Promise(() => {})
      },
    })
    await expect(call(url, { signal: ending.signal })).rejects.toMatchObject({ permanent: false })
  })

  test.each([
    ['a private address', 'http://169.254.169.254/mcp', 'address_not_allowed', true],
    ['a port where none listens', 'http://127.0.0.1:1/mcp', 'port_not_allowed', true],
  ])('to %s is refused: %s', async (_, url, code, permanent) => {
    const allowed = code === 'address_not_allowed' ? [] : ['127.0.0.1:1']
    await expect(call(url, {}, {}, allowed)).rejects.toMatchObject({ code, permanent })
  })

  test('to a server that is away may work later, and one that wants a login does not', async () => {
    const port = await freePort()
    await expect(call(`http://127.0.0.1:${port}/mcp`, {})).rejects.toMatchObject({
      code: 'refused',
      permanent: false,
    })
    const closed = await listen((_, response) => response.writeHead(401).end())
    closing.push(() => closed.close())
    await expect(call(`${closed.origin}/mcp`, {})).rejects.toMatchObject({
      code: 'unauthorized',
      permanent: true,
    })
  })
})

test.each([
  [[{ type: 'text', text: '{"a":1}' }], { a: 1 }],
  [[{ type: 'text', text: '[not JSON' }], '[not JSON'],
  [[{ type: 'text', text: '7' }], '7'],
  [
    [
      { type: 'text', text: 'one' },
      { type: 'text', text: 'two' },
    ],
    'one\ntwo',
  ],
  [[{ type: 'image', data: 'x' }], [{ type: 'image', data: 'x' }]],
  [[], ''],
])('the content %j is the output %j', (content, output) => {
  const answer = { content, structured: undefined, is_error: false, is_refusal: false }
  expect(answerOf(answer)).toEqual({ output, is_error: false })
})

describe('the answer of a tool of HTTP', () => {
  test('is its body, and its text if it is refused', () => {
    expect(answerOfHttp({ status: 200, headers: {}, body: { a: 1 } }, false)).toEqual({
      output: { a: 1 },
      is_error: false,
    })
    expect(answerOfHttp({ status: 404, headers: {}, body: { why: 'none' } }, false)).toEqual({
      output: 'HTTP 404: {"why":"none"}',
      is_error: true,
      lasting: true,
    })
  })

  test.each([
    [302, 'redirected', true],
    [401, 'unauthorized', true],
    [429, 'http_429', false],
    [503, 'http_503', false],
  ])('with status %d is a failure: %s', (status, code, permanent) => {
    expect(() => answerOfHttp({ status, headers: {}, body: null }, true)).toThrow(
      expect.objectContaining({ code, permanent }),
    )
  })
})

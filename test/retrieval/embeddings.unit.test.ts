import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { json } from 'node:stream/consumers'
import { afterEach, beforeEach, describe, expect, test } from '@jest/globals'
import { StateConflict } from '../../lib/problem.ts'
import type { Grant, issueToken } from '../../models/llm/tokens.ts'
import { type Embeddings, openEmbeddings } from '../../models/retrieval/embeddings.ts'

// How the platform itself asks the model gateway for embeddings. A server of the test is the gateway here;
// test/llm/embeddings.test.ts asks the real one.

interface Asked {
  url: string | undefined
  authorization: string | undefined
  body: { model: string; input: string[] }
}
let server: Server
let embeddings: Embeddings
let asked: Asked[]
type Budget = Parameters<typeof issueToken>[1]
let issued: { grant: Grant; budget: Budget }[]
let answer: (body: Asked['body'], response: ServerResponse, request: IncomingMessage) => void

const issue = async (grant: Grant, budget: Budget) => {
  issued.push({ grant, budget })
  return { token: `token-${issued.length}`, expires_at: new Date() }
}
const say = (response: ServerResponse, status: number, body: unknown): void =>
  void response.writeHead(status, { 'content-type': 'application/json' }).end(JSON.stringify(body))
const vectorOf = (text: string): number[] => [text.length, 1, 0.5]
const item = (text: string, index: number) => ({ object: 'embedding', index, embedding: vectorOf(text) })
const embedAll = ({ input }: Asked['body'], response: ServerResponse): void =>
  say(response, 200, { data: input.map(item), usage: { total_tokens: input.length * 3 } })

beforeEach(async () => {
  asked = []
  issued = []
  answer = embedAll
  server = createServer((request, response) => {
    void (async () => {
      const body = (await json(request)) as Asked['body']
      asked.push({ url: request.url, authorization: request.headers.authorization, body })
      answer(body, response, request)
    })()
  }).listen(0, '127.0.0.1')
  // On a busy machine a pause of seconds would let it close a connection on which a request is sent.
  server.keepAliveTimeout = 0
  await once(server, 'listening')
  embeddings = openEmbeddings(`http://127.0.0.1:${portOf()}/`, { issue })
})
afterEach(async () => {
  server.closeAllConnections()
  server.close()
  await embeddings.close()
})
const portOf = (): number => (server.address() as AddressInfo).port

const purpose = { kind: 'document', id: 'd1' } as const
const by = { tenant_id: 't1', purpose, connector_id: null, model: 'mini@0123456789abcdef' }
const refusal = (status: number, code: unknown, message = 'Why not') =>
  ((_, response) => say(response, status, { error: { code, message } })) as typeof answer

describe('embeddings of the platform’s own work', () => {
  test('come in the order of the texts, with the tokens that they took', async () => {
    answer = ({ input }, response) =>
      say(response, 200, { data: input.map(item).toReversed(), usage: { total_tokens: 7 } })
    const { vectors, tokens } = await embeddings.embed(['a', 'bcd'], by)
    expect(vectors).toEqual([Float32Array.of(1, 1, 0.5), Float32Array.of(3, 1, 0.5)])
    expect(tokens).toBe(7)
    expect(asked).toEqual([
      {
        url: '/v1/embeddings',
        authorization: 'Bearer token-1',
        body: { model: by.model, input: ['a', 'bcd'] },
      },
    ])
    expect(issued).toEqual([
      { grant: { tenant_id: 't1', purpose, connector_id: null, fallbacks: [] }, budget: null },
    ])
  })

  test('of many texts are asked for in several calls, each with a token of its own', async () => {
    const texts = Array.from({ length: 70 }, (_, index) => 'x'.repeat(index + 1))
    const { vectors, tokens } = await embeddings.embed(texts, { ...by, budget_tokens: 500 })
    expect(vectors.map(([first]) => first)).toEqual(texts.map(({ length }) => length))
    expect(tokens).toBe(210)
    expect(asked.map(({ body, authorization }) => [body.input.length, authorization])).toEqual([
      [32, 'Bearer token-1'],
      [32, 'Bearer token-2'],
      [6, 'Bearer token-3'],
    ])
    expect(issued.map(({ budget }) => budget)).toEqual([500, 500, 500])
  })

  test('of no text ask nobody', async () => {
    expect(await embeddings.embed([], by)).toEqual({ vectors: [], tokens: 0 })
    expect(asked).toEqual([])
  })
})
const of = (embedding: unknown, index: unknown = 0) => ({ data: [{ index, embedding }] })

describe('a failure', () => {
  test.each([
    [403, 'budget_exceeded'],
    [400, 'text_too_long'],
    [404, 'model_not_found'],
    [409, 'reauth_required'],
  ])('%i %s is permanent, in the gateway’s words', async (status, code) => {
    answer = refusal(status, code)
    const failed = embeddings.embed(['a'], by)
    await expect(failed).rejects.toMatchObject({ status, code, permanent: true, message: 'Why not' })
  })

  test.each([
    [429, 'too_many_calls'],
    [502, 'provider_unavailable'],
    [503, 'embedder_unavailable'],
    [504, 'provider_timeout'],
  ])('%i %s may pass', async (status, code) => {
    answer = refusal(status, code)
    await expect(embeddings.embed(['a'], by)).rejects.toMatchObject({ status, code, permanent: false })
  })

  test('of a provider has a code of the platform, if its own is none', async () => {
    answer = refusal(400, 17)
    const refused = embeddings.embed(['a'], by)
    await expect(refused).rejects.toMatchObject({ code: 'embedding_refused', permanent: true })
    answer = (_, response) => void response.writeHead(500).end('<html>')
    const failed = embeddings.embed(['a'], by)
    await expect(failed).rejects.toMatchObject({
      code: 'embedder_unavailable',
      permanent: false,
      message: 'The answer was 500',
    })
  })

  test('of the connection may pass: nobody listens, the gateway dies, or stays silent', async () => {
    const unreachable = { code: 'embedder_unavailable', permanent: false, status: null }
    answer = (_, __, request) => void request.socket.destroy()
    await expect(embeddings.embed(['a'], by)).rejects.toMatchObject(unreachable)
    answer = () => {}
    const impatient = openEmbeddings(`http://127.0.0.1:${portOf()}`, { issue, withinMs: 1_100 })
    await expect(impatient.embed(['a'], by)).rejects.toMatchObject(unreachable)
    server.closeAllConnections()
    await impatient.close()
    server.close()
    await once(server, 'close')
    await expect(embeddings.embed(['a'], by)).rejects.toMatchObject(unreachable)
  })

  test('of the token is permanent: the purpose is closed, or the connector is gone', async () => {
    const closed = openEmbeddings(`http://127.0.0.1:${portOf()}`, {
      issue: () => Promise.reject(new StateConflict('call a model', 'closed')),
    })
    await expect(closed.embed(['a'], by)).rejects.toMatchObject({ status: 409, permanent: true })
    await closed.close()
    expect(asked).toEqual([])
  })

  test('of the database stays what it is', async () => {
    const lost = new Error('no connection')
    const down = openEmbeddings(`http://127.0.0.1:${portOf()}`, { issue: () => Promise.reject(lost) })
    await expect(down.embed(['a'], by)).rejects.toBe(lost)
    await down.close()
  })

  test.each<[string, unknown]>([
    ['no JSON object', 7],
    ['no vector', { data: [] }],
    ['too many vectors', { data: [item('a', 0), item('a', 1)] }],
    ['a vector of another text', of([1], 1)],
    ['a place that is none', of([1], '__proto__')],
    ['an empty vector', of([])],
    ['a vector with words', of([1, 'two'])],
    ['a vector with nothing in it', of([1, null])],
    ['numbers that are too large', of([1e39])],
    ['a text instead of a vector', of('AACAPw==')],
    ['a vector that is too long', of(Array.from({ length: 8_193 }, () => 0))],
  ])('is an answer with %s', async (_, body) => {
    answer = (__, response) => say(response, 200, body)
    const failed = embeddings.embed(['a'], by)
    await expect(failed).rejects.toMatchObject({ code: 'unreadable_embeddings', permanent: false })
  })

  test('is an answer with vectors of several lengths', async () => {
    answer = (_, response) =>
      say(response, 200, { data: [item('a', 0), { index: 1, embedding: [1] }], usage: {} })
    const failed = embeddings.embed(['a', 'b'], by)
    await expect(failed).rejects.toMatchObject({ code: 'unreadable_embeddings' })
  })

  test('is an answer without end', async () => {
    answer = (_, response) => {
      const more = () => void response.write(' '.repeat(65_536), more)
      more()
    }
    const failed = embeddings.embed(['a'], by)
    await expect(failed).rejects.toMatchObject({ code: 'unreadable_embeddings', permanent: false })
  })
})

test('a signal ends the call with its reason, and no other call follows', async () => {
  const leaving = new AbortController()
  const reason = new Error('cancelled')
  answer = () => leaving.abort(reason)
  const left = embeddings.embed(
    Array.from({ length: 40 }, () => 'x'),
    { ...by, signal: leaving.signal },
  )
  await expect(left).rejects.toBe(reason)
  await expect(embeddings.embed(['a'], { ...by, signal: leaving.signal })).rejects.toBe(reason)
  expect(asked).toHaveLength(1)
})

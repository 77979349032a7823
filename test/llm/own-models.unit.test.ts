import { once } from 'node:events'
import { createServer, type IncomingMessage, type Server, type ServerResponse } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import OpenAI from 'openai'
import { CallRefused, type Endpoint, endpointOf, errorBody } from '../../gateway/models/dialects.ts'
import { answerOwn } from '../../gateway/models/own-calls.ts'
import { openOwnModels, type OwnModels } from '../../gateway/models/own-models.ts'
import { readAsked } from '../../gateway/models/requests.ts'
import { makeLogger } from '../../lib/log.ts'
import { type CallEnd, noEnd } from '../../models/llm/calls.ts'
import { cosine, embedderFolder, ownEmbedder } from '../support/embedder.ts'
import { eventually } from '../support/eventually.ts'

// The platform's own models as OpenAI's SDK calls them, without tokens and ledgers: test/llm/embeddings.test.ts has those.

let models: OwnModels
let server: Server
let client: OpenAI
/** Of the calls of a test. */
let ends: CallEnd[]
/** Of the last call. */
let stop: AbortController

async function serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
  const endpoint = endpointOf(request.method ?? '', (request.url ?? '').slice('/v1'.length)) as Endpoint
  const end: CallEnd = {
    ...noEnd,
    status: 'failed',
    connector_id: null,
    provider: '',
    base_url: '',
    model: '',
  }
  ends.push(end)
  stop = new AbortController()
  try {
    const asked = await readAsked(request, endpoint, 1024 ** 2)
    const more = { begunMs: Date.now(), mostMs: 60_000, stop, beforeLast: async () => {} }
    await answerOwn({ models, endpoint, dialect: 'openai', asked, party: 'a', response, end, ...more })
  } catch (error) {
    const refused = error instanceof CallRefused ? error : new CallRefused(503, 'unavailable', String(error))
    response.writeHead(refused.status, { 'content-type': 'application/json' })
    response.end(JSON.stringify(errorBody('openai', refused)))
  }
}

beforeAll(async () => {
  models = await openOwnModels([`${embedderFolder}-missing`, embedderFolder], 1, makeLogger('test', 'fatal'))
  server = createServer((request, response) => void serve(request, response)).listen(0, '127.0.0.1')
  await once(server, 'listening')
  const { port } = server.address() as AddressInfo
  client = new OpenAI({ apiKey: 'none', baseURL: `http://127.0.0.1:${port}/v1`, maxRetries: 0 })
})
beforeEach(() => {
  ends = []
})
afterAll(async () => {
  server.close()
  await models.close()
})

const model = 'all-MiniLM-L6-v2-int8'
const input = ['The weather is lovely today.', "It's so sunny outside!", 'He drove to the stadium.']
const asFloats = { model, input, encoding_format: 'float' } as const
const long = 'Each document has a stage, and ends as ready or failed. '.repeat(15)

describe('embeddings', () => {
  test('come in the order of the texts, with the tokens that they took', async () => {
    const { data, usage, ...answer } = await client.embeddings.create(asFloats)
    expect(data.map(({ index }) => index)).toEqual([0, 1, 2])
    const [a, b, c] = data.map(({ embedding }) => embedding) as [number[], number[], number[]]
    expect(Math.abs(cosine(a, b) - 0.666)).toBeLessThan(0.01) // as published: embedder.unit.test.ts
    expect(Math.abs(cosine(a, c) - 0.1046)).toBeLessThan(0.01)
    expect(usage).toEqual({ prompt_tokens: 25, total_tokens: 25 })
    expect(answer.model).toBe((await ownEmbedder()).id)
    expect(ends).toMatchObject([
      {
        status: 'succeeded',
        http_status: 200,
        model,
        input_tokens: 25,
        output_tokens: 0,
        counted_by: 'provider',
      },
    ])
  })

  test('are the same as numbers and in base64, which the SDK asks for by itself', async () => {
    const floats = await client.embeddings.create(asFloats)
    const packed = await client.embeddings.create({ model, input })
    for (const [index, { embedding }] of packed.data.entries())
      expect(embedding.map(Math.fround)).toEqual(floats.data[index]?.embedding.map(Math.fround))
  })

  test('of one text are a list of one', async () => {
    const { data } = await client.embeddings.create({ model, input: 'one text', dimensions: 384 })
    expect(data.map(({ embedding }) => embedding.length)).toEqual([384])
  })

  test('are given by the id with the hash, and by no other hash', async () => {
    const { id, name } = await ownEmbedder()
    const { data } = await client.embeddings.create({ model: id, input: 'text' })
    expect(data).toHaveLength(1)
    const other = client.embeddings.create({ model: `${name}@0123456789abcdef`, input: 'text' })
    await expect(other).rejects.toMatchObject({ status: 404, code: 'model_not_found' })
    expect(ends.at(-1)).toMatchObject({ status: 'refused', input_tokens: 0, counted_by: null })
  })

  test.each<[string, Partial<OpenAI.EmbeddingCreateParams>]>([
    ['no text', { input: [] }],
    ['an empty text', { input: ['text', ''] }],
    ['tokens instead of texts', { input: [[101, 102]] }],
    ['too many texts', { input: Array.from({ length: 257 }, () => 'x') }],
    ['other dimensions', { dimensions: 256 }],
    ['an unknown encoding', { encoding_format: 'int8' as 'float' }],
  ])('of %s are refused', async (_, wrong) => {
    const refused = client.embeddings.create({ ...asFloats, ...wrong })
    await expect(refused).rejects.toMatchObject({ status: 400, code: 'invalid_request' })
    expect(ends).toMatchObject([{ status: 'refused', input_tokens: 0 }])
  })

  test('of a text that is too long are refused before anything is embedded', async () => {
    const refused = client.embeddings.create({ model, input: ['short', long.repeat(2), long] })
    await expect(refused).rejects.toMatchObject({
      status: 400,
      code: 'text_too_long',
      message: expect.stringMatching(/Text 1 has 3\d\d tokens, and the model reads 256/),
    })
    expect(ends).toMatchObject([{ status: 'refused', input_tokens: 0 }])
  })

  test('for a caller who leaves end there, and what was embedded is counted', async () => {
    const leaving = new AbortController()
    const many = Array.from({ length: 100 }, () => long)
    const left = client.embeddings.create({ model, input: many }, { signal: leaving.signal })
    await eventually(() => (ends[0]?.input_tokens ?? 0) > 0)
    leaving.abort()
    await expect(left).rejects.toThrow()
    await eventually(() => ends[0]?.status === 'interrupted')
    expect(ends).toMatchObject([{ status: 'interrupted', counted_by: 'provider' }])
    // The model was asked for the rest neither then nor later.
    const counted = ends[0]?.input_tokens ?? 0
    await client.embeddings.create({ model, input: 'next' })
    expect(counted).toBeLessThan(100 * 190)
    expect(ends[0]?.input_tokens).toBe(counted)
  })

  test('end if the gateway stops', async () => {
    const cut = client.embeddings.create({ model, input: Array.from({ length: 100 }, () => long) })
    const refused = expect(cut).rejects.toMatchObject({ status: 503 })
    await eventually(() => (ends[0]?.input_tokens ?? 0) > 0)
    stop.abort()
    await refused
    expect(ends).toMatchObject([{ status: 'failed', counted_by: 'provider' }])
  })
})

describe('the list of models', () => {
  test('has what a collection pins, and leaves out folders that cannot be read', async () => {
    const { data } = await client.models.list()
    const { id, hash } = await ownEmbedder()
    expect(data).toMatchObject([
      { id, object: 'model', name: model, hash, dimensions: 384, most_tokens: 256 },
    ])
    expect(await client.models.retrieve(model)).toEqual(data[0])
    await expect(client.models.retrieve('gpt-4o')).rejects.toMatchObject({ status: 404 })
  })
})

test('a chat is no API of the platform’s own models', async () => {
  const asked = client.chat.completions.create({ model, messages: [{ role: 'user', content: 'hello' }] })
  await expect(asked).rejects.toMatchObject({ status: 404, code: 'not_found' })
})

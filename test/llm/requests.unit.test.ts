import { describe, expect, test } from '@jest/globals'
import { type Endpoint, endpointOf } from '../../gateway/models/dialects.ts'
import { askedIn, bodyFor, reserves } from '../../gateway/models/requests.ts'

// What the gateway reads in the body of a call, and what it sends on.

const at = (path: string): Endpoint => endpointOf('POST', path) as Endpoint
const chat = at('/chat/completions')
const read = (endpoint: Endpoint, body: object | string) =>
  askedIn(Buffer.from(typeof body === 'string' ? body : JSON.stringify(body)), endpoint)
const tokensOf = (content: string) => read(chat, { model: 'm', content }).input_tokens
const sent = (body: string, model: string | null = null) => bodyFor(chat, read(chat, body), model)

describe('the body of a call', () => {
  test('goes on byte by byte', () => {
    const body = '{ "model" : "m",  "seed": 12345678901234567890, "messages":[] }'
    expect(sent(body)).toEqual({ body: Buffer.from(body), hidden: false })
  })

  test('of a stream of a chat asks for its usage, and keeps all other bytes', () => {
    const { body, hidden } = sent(' {"model":"m","stream":true,"seed":12345678901234567890}')
    expect(body.toString()).toBe(
      ' {"stream_options":{"include_usage":true},"model":"m","stream":true,"seed":12345678901234567890}',
    )
    expect(hidden).toBe(true)
  })

  test('keeps the other options of a stream', () => {
    const { body } = sent('{"model":"m","stream":true,"stream_options":{"include_obfuscation":false}}')
    expect(JSON.parse(body.toString())).toEqual({
      model: 'm',
      stream: true,
      stream_options: { include_obfuscation: false, include_usage: true },
    })
  })

  test('stays as it is if the caller asks for the usage', () => {
    const body = '{"model":"m","stream":true,"stream_options":{"include_usage":true}}'
    expect(sent(body)).toEqual({ body: Buffer.from(body), hidden: false })
  })

  test('names the model of a fallback', () => {
    expect(JSON.parse(sent('{"model":"m","n":2}', 'other').body.toString())).toEqual({ model: 'other', n: 2 })
  })

  test.each([
    ['no JSON', '{'],
    ['no object', '[1]'],
    ['null', 'null'],
    ['without a model', '{}'],
    ['with a model that is no text', '{"model":7}'],
  ])('is refused: %s', (_, body) => {
    expect(() => read(chat, body)).toThrow(expect.objectContaining({ status: 400, code: 'invalid_request' }))
  })
})

describe('the reservation', () => {
  test('is said with its reason', () => {
    expect(reserves(read(chat, { model: 'm', max_tokens: 10 }))).toMatch(/^This call reserves \d\d tokens$/)
    expect(reserves(read(chat, { model: 'm' }))).toMatch(
      /^This call reserves 327\d\d tokens, 32768 of them because it does not bound its answer \(max_tokens\)$/,
    )
  })

  test.each([
    ['/chat/completions', { max_tokens: 100 }, 100],
    ['/chat/completions', { max_completion_tokens: 50, max_tokens: 100 }, 50],
    ['/chat/completions', { max_tokens: 100, n: 3 }, 300],
    ['/chat/completions', {}, 32_768],
    ['/chat/completions', { max_tokens: -1 }, 32_768],
    ['/chat/completions', { max_tokens: '5' }, 32_768],
    ['/responses', { max_output_tokens: 70 }, 70],
    ['/messages', { max_tokens: 80 }, 80],
    ['/embeddings', {}, 0],
    ['/rerank', {}, 0],
    ['/messages/count_tokens', {}, 0],
  ])('of %s with %j has %d tokens for the answer', (path, fields, tokens) => {
    expect(read(at(path), { model: 'm', ...fields }).output_tokens).toBe(tokens)
  })

  test('has more tokens for the input than English, code or Chinese have', () => {
    expect(tokensOf('word '.repeat(1_000))).toBeGreaterThan(1_000)
    expect(tokensOf('x = f(y);\n'.repeat(1_000))).toBeGreaterThan(3_000)
    expect(tokensOf('中'.repeat(1_000))).toBeGreaterThanOrEqual(1_000)
  })

  test('counts an image as an image', () => {
    const data = 'A'.repeat(900_000)
    const image = { type: 'image', source: { type: 'base64', media_type: 'image/png', data } }
    const url = { type: 'image_url', image_url: { url: `data:image/png;base64,${data}` } }
    for (const part of [image, url]) {
      const { input_tokens } = read(chat, { model: 'm', messages: [{ role: 'user', content: [part] }] })
      expect(input_tokens).toBeGreaterThan(6_000)
      expect(input_tokens).toBeLessThan(7_000)
    }
  })

  test('of a call without metering is nothing', () => {
    expect(read(at('/messages/count_tokens'), { model: 'm' }).input_tokens).toBe(0)
  })
})

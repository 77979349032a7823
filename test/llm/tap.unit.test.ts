import { describe, expect, test } from '@jest/globals'
import type { Dialect } from '../../gateway/models/dialects.ts'
import { tapEvents, tapJson, type Tap } from '../../gateway/models/tap.ts'
import * as answers from '../support/model-provider/answers.ts'

// What the gateway reads in an answer that passes, and that it passes as it was.

const { said, text } = answers
const truth = { input_tokens: 21, output_tokens: 9, cache_read_tokens: 5 }
const plain = { body: { model: 'm', stream_options: { include_usage: true } }, figures: 'true' as const }
const streams: [string, Dialect, string][] = [
  ['of a chat', 'openai', answers.chatEvents(plain).join('')],
  ['of responses', 'openai', answers.responseEvents(plain).join('')],
  ['of messages', 'anthropic', answers.messageEvents(plain).join('')],
]

function passed(tap: Tap, bytes: Buffer, cuts: number[]): string {
  const edges = [0, ...cuts, bytes.length]
  const pieces = edges.slice(1).map((to, i) => tap.take(bytes.subarray(edges[i], to)))
  return Buffer.concat([...pieces, tap.end()]).toString()
}

describe.each(streams)('a stream %s', (_, dialect, stream) => {
  const bytes = Buffer.from(stream)

  test('passes as it is and tells its usage, wherever it is cut', () => {
    for (let at = 0; at <= bytes.length; at++) {
      const tap = tapEvents(dialect, false)
      expect(passed(tap, bytes, [at])).toBe(stream)
      expect(tap.usage()).toMatchObject(truth)
      expect(tap.isWhole).toBe(true)
    }
  })

  test('tells how much text it had, without its end', () => {
    const tap = tapEvents(dialect, false)
    tap.take(bytes.subarray(0, stream.indexOf(said.pieces[2] as string) - 40))
    expect(tap.isWhole).toBe(false)
    expect(tap.textBytes).toBeGreaterThanOrEqual(said.pieces.slice(0, 2).join('').length)
    expect(tap.textBytes).toBeLessThan(text.length + 30)
  })

  test('with CRLF is read the same', () => {
    const tap = tapEvents(dialect, false)
    tap.take(Buffer.from(stream.replaceAll('\n', '\r\n')))
    expect(tap.usage()).toMatchObject(truth)
  })
})

describe('the usage that the caller did not ask for', () => {
  const events = answers.chatEvents(plain)
  const stream = events.join('')
  const without = events.filter((one) => !one.includes('"choices":[]')).join('')

  test('does not pass, wherever the stream is cut', () => {
    expect(without).not.toBe(stream)
    const bytes = Buffer.from(stream)
    for (let at = 0; at <= bytes.length; at++) {
      const tap = tapEvents('openai', true)
      expect(passed(tap, bytes, [at])).toBe(without)
      expect(tap.usage()).toEqual(truth)
    }
  })

  test('does not pass at the end of a stream without a last blank line', () => {
    const cut = stream.replace('data: [DONE]\n\n', '').trimEnd()
    const tap = tapEvents('openai', true)
    expect(passed(tap, Buffer.from(cut), [])).toBe(without.replace('data: [DONE]\n\n', ''))
    expect(tap.usage()).toEqual(truth)
  })

  test('of a chunk with text passes, as some servers send it', () => {
    const chunk = `data: {"choices":[{"delta":{"content":"a"}}],"usage":{"prompt_tokens":1,"completion_tokens":1}}\n\n`
    const tap = tapEvents('openai', true)
    expect(passed(tap, Buffer.from(chunk), [20])).toBe(chunk)
    expect(tap.usage()).toEqual({ input_tokens: 1, output_tokens: 1 })
  })
})

const kinds: [string, Dialect, (of: { body: object; figures: answers.Figures }) => object][] = [
  ['a chat', 'openai', (of) => answers.chat(of as never)],
  ['a response', 'openai', (of) => answers.response(of as never)],
  ['a message', 'anthropic', (of) => answers.message(of as never)],
]
describe.each(kinds)('the answer of %s', (_, dialect, answer) => {
  const tapped = (figures: answers.Figures): Tap => {
    const tap = tapJson(dialect)
    const bytes = Buffer.from(JSON.stringify(answer({ body: { model: 'm' }, figures })))
    expect(passed(tap, bytes, [7])).toBe(bytes.toString())
    return tap
  }

  test('tells its usage', () => {
    expect(tapped('true').usage()).toMatchObject(truth)
  })
  test('of one piece goes on at its end, in one write', () => {
    const bytes = Buffer.from('{}')
    const tap = tapJson(dialect)
    expect(tap.take(bytes)).toHaveLength(0)
    expect(tap.end()).toEqual(bytes)
  })
  test('may take nothing', () => {
    expect(tapped('zero').usage()).toMatchObject({ input_tokens: 0, output_tokens: 0 })
    expect(tapped('zero').lied).toBe(false)
  })
  test('without figures is no lie', () => {
    expect([tapped('none').usage(), tapped('none').lied]).toEqual([null, false])
  })
  test.each(['absurd', 'negative'] as const)('with %s figures is not believed', (figures) => {
    expect([tapped(figures).usage(), tapped(figures).lied]).toEqual([null, true])
  })
})

test.each([
  ['text', '{"usage":{"input_tokens":"10","output_tokens":1}}'],
  ['half a token', '{"usage":{"input_tokens":1.5,"output_tokens":1}}'],
  [
    'a cache beyond the input',
    '{"usage":{"prompt_tokens":1,"completion_tokens":1,"prompt_tokens_details":{"cached_tokens":2}}}',
  ],
])('a figure that is %s is not believed', (_, answer) => {
  for (const dialect of ['openai', 'anthropic'] as const) {
    if (dialect === 'anthropic' && answer.includes('prompt_tokens')) continue
    const tap = tapJson(dialect)
    tap.take(Buffer.from(answer))
    tap.end()
    expect([tap.usage(), tap.lied]).toEqual([null, true])
  }
})

const read = (tap: Tap, answer: string): Tap => {
  passed(tap, Buffer.from(answer), [5])
  return tap
}
const events = (...all: object[]) => all.map((one) => `data: ${JSON.stringify(one)}\n\n`).join('')

describe('an answer', () => {
  test('of one value is whole if it is JSON', () => {
    expect(read(tapJson('openai'), '{"choices":[]}').isWhole).toBe(true)
    expect(read(tapJson('openai'), '{"choices":').isWhole).toBe(false)
  })

  test.each([
    '{"error":{"message":"overloaded"}}',
    '{"status":"failed","error":null}',
    '{"type":"error","error":{"type":"overloaded_error"}}',
  ])('that is a failure says so: %s', (answer) => {
    expect(read(tapJson('openai'), answer).hasFailed).toBe(true)
    expect(read(tapEvents('openai', false), `data: ${answer}\n\ndata: [DONE]\n\n`).hasFailed).toBe(true)
  })

  test('of a stream may fail in its last event', () => {
    const failed = {
      type: 'response.failed',
      response: { status: 'failed', error: { code: 'server_error' } },
    }
    const tap = read(tapEvents('openai', false), events({ type: 'response.created' }, failed))
    expect([tap.isWhole, tap.hasFailed]).toEqual([true, true])
  })

  test.each(streams)('that is none does not: a stream %s', (_, dialect, stream) => {
    expect(read(tapEvents(dialect, false), stream).hasFailed).toBe(false)
  })

  test.each(['{"error":null,"status":"completed"}', '{"status":"incomplete"}', '[]', '1', 'null'])(
    'that is none does not: %s',
    (answer) => {
      expect(read(tapJson('openai'), answer).hasFailed).toBe(false)
    },
  )
})

function usageOf(answer: object) {
  const tap = tapJson('openai')
  tap.take(Buffer.from(JSON.stringify(answer)))
  tap.end()
  return tap.usage()
}

test('a total without an output is the input: of embeddings and rankings', () => {
  const documents = ['one', 'two']
  const ranking = answers.ranking({ body: { query: 'one', documents }, figures: 'true' })
  expect(usageOf(ranking)).toEqual({ input_tokens: said.usage.input })
  expect(usageOf({ usage: { total_tokens: 9, completion_tokens: 2 } })).toEqual({ output_tokens: 2 })
})

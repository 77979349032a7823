import { describe, expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import { answerIn } from '../../activities/runner/llm.ts'
import { readStreamed } from '../../activities/runner/streamed-answers.ts'
import { chatEvents, messageEvents, said, text } from '../support/model-provider/answers.ts'

// How a runner reads a model's answer while it streams.

const asked = { body: { model: 'm' }, figures: 'true' } as const
const apis = [
  { provider: 'openai', path: '/v1/chat/completions', events: chatEvents(asked) },
  { provider: 'anthropic', path: '/v1/messages', events: messageEvents(asked) },
]

function read(path: string, pieces: Buffer[]) {
  const texts: string[] = []
  const answer = readStreamed(path, (one) => texts.push(one))
  for (const piece of pieces) answer.take(piece)
  return { texts, end: () => answer.end() }
}
const data = (event: object): string => `data: ${JSON.stringify(event)}\n\n`
const delta = (of: object, finish_reason: string | null = null): string =>
  data({ choices: [{ delta: of, finish_reason }] })

describe.each(apis)('an answer of $provider that streams', ({ provider, path, events }) => {
  test('gives its texts as they come, and is the same in the end as one that does not', () => {
    const { texts, end } = read(path, [Buffer.from(events.join(''))])
    expect(texts).toEqual(said.pieces)
    const { said: whole, failed } = end()
    expect([answerIn(provider, whole, undefined), failed]).toEqual([JSON.stringify(text), false])
  })

  test('is read wherever the network cuts it', () => {
    const bytes = Buffer.from(events.join('').replaceAll(said.pieces[1] ?? '', 'größer 🚀 '))
    fc.assert(
      fc.property(fc.array(fc.nat(bytes.length), { maxLength: 20 }), (places) => {
        const cuts = [0, ...places.toSorted((one, other) => one - other), bytes.length]
        const pieces = cuts.slice(1).map((to, at) => bytes.subarray(cuts[at], to))
        const { texts, end } = read(path, pieces)
        expect(texts.join('')).toBe('Three größer 🚀 words')
        expect(answerIn(provider, end().said, undefined)).toBe('"Three größer 🚀 words"')
      }),
    )
  })

  test('has no end before its API says so', () => {
    // OpenAI’s says it twice, and the usage may be between.
    const cut = events.slice(
      0,
      events.findIndex((one) => /"(stop|end_turn)"/.test(one)),
    )
    expect(() => read(path, [Buffer.from(cut.join(''))]).end()).toThrow('no end')
  })

  test('may say that it has failed', () => {
    const error = { type: 'error', error: { type: 'overloaded_error', message: 'later' } }
    const pieces = [Buffer.from(events.slice(0, 3).join('')), Buffer.from(data(error))]
    expect(read(path, pieces).end()).toEqual({ said: JSON.stringify(error), failed: true })
  })
})

test('A model’s refusal is one, also if it streams', () => {
  const events = [
    delta({ refusal: 'I ' }),
    delta({ refusal: 'cannot' }),
    delta({}, 'stop'),
    'data: [DONE]\n\n',
  ]
  const { texts, end } = read('/v1/chat/completions', [Buffer.from(events.join(''))])
  expect(texts).toEqual([])
  expect(() => answerIn('openai', end().said, undefined)).toThrow(
    expect.objectContaining({ code: 'model_refused', message: 'I cannot' }),
  )
})

test('An answer without text cannot be read, and strange events are passed over', () => {
  const events = ['data: no JSON\n\n', 'data: 7\n\n', ': a comment\n\n', delta({}, 'stop')]
  const { end } = read('/v1/chat/completions', [Buffer.from(events.join(''))])
  expect(() => answerIn('openai', end().said, undefined)).toThrow(
    expect.objectContaining({ code: 'unreadable_answer' }),
  )
})

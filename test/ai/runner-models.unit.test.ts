import { describe, expect, test } from '@jest/globals'
import { answerIn, type Message, refusalOf, requestTo } from '../../activities/runner/llm.ts'

// How a node's messages become a request of a provider's API, and its answer the node's output.

const model = {
  connector: 'x',
  model: 'm',
  parameters: { max_tokens: 50, temperature: 0, stop: ['END'], seed: 7 },
}
const messages: Message[] = [
  { role: 'system', content: 'Be brief' },
  { role: 'user', content: 'Hello' },
]
const object = { type: 'object', properties: { topic: { type: 'string' } }, required: ['topic'] }
const list = { type: 'array', items: { type: 'string' } }

describe('a request', () => {
  test('in OpenAI’s API has the messages and the parameters that are given', () => {
    expect(requestTo('openai', { connector: 'x', model: 'm' }, messages, undefined)).toEqual({
      path: '/v1/chat/completions',
      body: { model: 'm', messages },
    })
    expect(requestTo('openai', model, messages, object).body).toEqual({
      model: 'm',
      messages,
      max_completion_tokens: 50,
      temperature: 0,
      stop: ['END'],
      seed: 7,
      response_format: { type: 'json_schema', json_schema: { name: 'answer', schema: object } },
    })
  })

  test('to others with that API names the bound of the answer as they do', () => {
    expect(requestTo('mistral', model, messages, undefined).body).toMatchObject({ max_tokens: 50 })
  })

  test('in Anthropic’s API has the system’s text apart, and a tool for an answer with a schema', () => {
    expect(requestTo('anthropic', model, messages, undefined)).toEqual({
      path: '/v1/messages',
      body: {
        model: 'm',
        system: 'Be brief',
        messages: [messages[1]],
        max_tokens: 50,
        temperature: 0,
        stop_sequences: ['END'],
      },
    })
    const { body } = requestTo('anthropic', { connector: 'x', model: 'm' }, messages, list)
    expect(body).toMatchObject({
      max_tokens: 4096,
      tools: [{ name: 'answer', input_schema: { type: 'object', properties: { value: list } } }],
      tool_choice: { type: 'tool', name: 'answer' },
    })
    const ofObject = requestTo('anthropic', model, messages, object).body
    expect(ofObject).toMatchObject({ tools: [{ input_schema: object }] })
  })
})

const chat = (content: unknown, more: object = {}): string =>
  JSON.stringify({ choices: [{ message: { content, ...more }, finish_reason: 'stop' }] })
const said = (...content: object[]): string => JSON.stringify({ content })

describe('an answer', () => {
  test('is the text, or the JSON that the schema wants', () => {
    expect(answerIn('openai', chat('Hi "you"'), undefined)).toBe('"Hi \\"you\\""')
    expect(answerIn('openai', chat(' {"topic":"x"} '), object)).toBe('{"topic":"x"}')
    const texts = said({ type: 'text', text: 'Hi ' }, { type: 'text', text: 'you' })
    expect(answerIn('anthropic', texts, undefined)).toBe('"Hi you"')
    const use = (input: object) => said({ type: 'text', text: 'Hm' }, { type: 'tool_use', input })
    expect(answerIn('anthropic', use({ topic: 'x' }), object)).toBe('{"topic":"x"}')
    expect(answerIn('anthropic', use({ value: ['x'] }), list)).toBe('["x"]')
  })

  test.each([
    ['openai', 'no JSON'],
    ['openai', '7'],
    ['openai', '{"choices":[]}'],
    ['openai', chat(null)],
    ['anthropic', '{"content":"x"}'],
    ['anthropic', said()],
  ])('of %s that cannot be read may be another one next time: %s', (provider, text) => {
    expect(() => answerIn(provider, text, undefined)).toThrow(
      expect.objectContaining({ code: 'unreadable_answer', permanent: false }),
    )
  })

  test('that is a refusal is one for good', () => {
    const refused = expect.objectContaining({ code: 'model_refused', permanent: true })
    expect(() => answerIn('openai', chat(null, { refusal: 'No' }), undefined)).toThrow(refused)
    expect(() => answerIn('anthropic', '{"stop_reason":"refusal","content":[]}', undefined)).toThrow(refused)
  })

  test.each([
    [403, '{"error":{"code":"budget_exceeded","message":"spent"}}', 'budget_exceeded', true],
    [400, '{"error":{"code":null,"message":"bad"}}', 'model_refused_call', true],
    [429, '{"error":{"code":"too_many_calls","message":"later"}}', 'too_many_calls', false],
    [503, 'no JSON', 'model_unavailable', false],
    [500, '{"error":{"code":"NOT A CODE","message":7}}', 'model_unavailable', false],
  ])('with the status %s says why there is none', (status, text, code, permanent) => {
    expect(refusalOf(status, text)).toMatchObject({ code, permanent })
  })
})

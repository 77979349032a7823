import { afterAll, describe, expect, test } from '@jest/globals'
import { outcomeOf } from '../../activities/runner/kinds.ts'
import type { CallEnd } from '../../activities/runner/work.ts'
import { ExpressionPool } from '../../lib/ai/expression-pool.ts'
import { variablesJson } from '../../lib/ai/programs.ts'
import { validate } from '../../lib/ai/validate.ts'
import type { OfferedTool } from '../../lib/runner-calls.ts'
import { noApi, noTokens } from '../support/ai/runner-work.ts'
import { lookups, specOf } from '../support/ai/specs.ts'

// A model that calls tools, in both APIs: the model's answers and the tools' are scripted.

const pool = new ExpressionPool(1)
afterAll(() => pool.close())

const search: OfferedTool = {
  at: 0,
  name: 'find',
  shown: 'find',
  description: 'Finds',
  input_schema: { type: 'object', properties: { query: { type: 'string' } }, required: ['query'] },
}
const done = (output: unknown, is_error = false): CallEnd => ({
  state: 'done',
  output: JSON.stringify(output),
  is_error,
})

interface Script {
  provider?: string
  /** Of the model: one for each call. */
  says: object[]
  /** Of the tool. */
  answers?: (given: unknown, count: number) => CallEnd
  node?: object
  attempt?: number
}
type Body = { messages: Record<string, unknown>[] } & Record<string, unknown>

/** Carries out a node, and returns what was asked of the model and of the tool. */
async function play({
  provider = 'openai',
  says,
  answers = () => done('found'),
  node = {},
  attempt = 1,
}: Script) {
  const ask = {
    kind: 'llm',
    model: 'fast',
    messages: [{ role: 'user', content: '${input.text}' }],
    tools: [{ tool: 'docs' }],
    ...node,
  }
  const { valid, ...faults } = await validate(specOf({ ask }), lookups())
  if (!valid) throw new Error(JSON.stringify(faults))
  const bodies: Body[] = []
  const keys: string[] = []
  const called: { key: string; given: unknown }[] = []
  const api = {
    ...noApi,
    modelGrant: async () => ({ token: 't', provider }),
    offeredTools: async () => done([search]),
    async callTool(_run: string, _node: string, _attempt: number, asked: { key: string; arguments: string }) {
      const given: unknown = JSON.parse(asked.arguments)
      called.push({ key: asked.key, given })
      return answers(given, called.length)
    },
  }
  const callModel = async ({ body, key }: { body: object; key: string }) => {
    bodies.push(structuredClone(body) as Body)
    keys.push(key)
    return { status: 200, said: JSON.stringify(says[bodies.length - 1]) }
  }
  const begun = { done: null, given: variablesJson('{"text":"Hi"}', {}), nodes: {} }
  const task = { run: 'run', name: 'ask', attempt, begun, signal: new AbortController().signal }
  const end = outcomeOf({ api, callModel, tokens: noTokens, pool, ...valid, key: JSON.stringify(node) }, task)
  return { end: await end.catch((error: unknown) => error), bodies, keys, called }
}

const wants = (...all: [name: string, given: string][]) => ({
  choices: [
    {
      message: {
        role: 'assistant',
        content: null,
        refusal: null,
        tool_calls: all.map(([name, given], at) => ({
          id: `call_${at}`,
          type: 'function',
          function: { name, arguments: given },
        })),
      },
    },
  ],
})
const says = (content: string) => ({ choices: [{ message: { content } }] })
const use = (name: string, input: object) => ({ type: 'tool_use', id: `use_${name}`, name, input })
const succeeded = (output: unknown) => ({ status: 'succeeded', output: JSON.stringify(output) })

describe('a model with tools', () => {
  test('gets their results, round after round, and then gives the answer', async () => {
    const { end, bodies, keys, called } = await play({
      says: [
        wants(['find', '{"query":"a"}'], ['find', '{"query":"b"}']),
        wants(['find', '{"query":"c"}']),
        says('So'),
      ],
      answers: (given) => done(`found ${JSON.stringify(given)}`),
    })
    expect(end).toMatchObject(succeeded('So'))
    expect(called.map(({ key }) => key)).toEqual(['ask/0/0', 'ask/0/1', 'ask/1/0'])
    expect(keys).toEqual(['ask/0', 'ask/1', 'ask/2'])
    expect(bodies[0]).toMatchObject({
      messages: [{ role: 'user', content: 'Hi' }],
      tools: [
        {
          type: 'function',
          function: { name: 'find', description: 'Finds', parameters: search.input_schema },
        },
      ],
    })
    expect(bodies[2]?.messages).toMatchObject([
      { role: 'user' },
      { role: 'assistant', content: null, tool_calls: [{ id: 'call_0' }, { id: 'call_1' }] },
      { role: 'tool', tool_call_id: 'call_0', content: 'found {"query":"a"}' },
      { role: 'tool', tool_call_id: 'call_1', content: 'found {"query":"b"}' },
      { role: 'assistant' },
      { role: 'tool', content: 'found {"query":"c"}' },
    ])
    expect(bodies[1]?.messages[1]).not.toHaveProperty('refusal')
  })

  test('speaks Anthropic’s API as well, where an answer of a schema is one more tool', async () => {
    const schema = { type: 'object', properties: { topic: { type: 'string' } }, required: ['topic'] }
    const thought = { type: 'thinking', thinking: 'Hm', signature: 's' }
    const { end, bodies } = await play({
      provider: 'anthropic',
      node: { output_schema: schema },
      says: [
        { content: [thought, use('find', { query: 'a' })] },
        { content: [use('answer', { topic: 'x' })] },
      ],
      answers: () => done('nothing', true),
    })
    expect(end).toMatchObject(succeeded({ topic: 'x' }))
    expect(bodies[0]).toMatchObject({
      tools: [{ name: 'answer' }, { name: 'find', input_schema: search.input_schema }],
      tool_choice: { type: 'any' },
    })
    expect(bodies[1]?.messages.slice(1)).toEqual([
      { role: 'assistant', content: [thought, use('find', { query: 'a' })] },
      {
        role: 'user',
        content: [{ type: 'tool_result', tool_use_id: 'use_find', content: 'nothing', is_error: true }],
      },
    ])
  })

  test.each([
    ['arguments that do not fit', 'find', '{"query":7}', /do not fit: \/query/],
    ['arguments that are no JSON', 'find', '{"query', /not the JSON of an object/],
    ['a tool that there is not', 'erase', '{}', /no tool erase/],
  ])('hears of %s, and may call again', async (_, name, given, expected) => {
    const { end, bodies, called } = await play({ says: [wants([name, given]), says('Sorry')] })
    expect(end).toMatchObject(succeeded('Sorry'))
    expect(called).toEqual([])
    expect(bodies[1]?.messages.at(-1)).toMatchObject({
      role: 'tool',
      content: expect.stringMatching(expected),
    })
  })

  test('hears of what its tool calls an error', async () => {
    const { bodies } = await play({
      says: [wants(['find', '{"query":"a"}']), says('So')],
      answers: () => done('no such page', true),
    })
    expect(bodies[1]?.messages.at(-1)).toMatchObject({ content: 'Error: no such page' })
  })

  test('calls no more than 16 tools at once', async () => {
    const all = Array.from({ length: 20 }, (): [string, string] => ['find', '{"query":"a"}'])
    const { bodies, called } = await play({ says: [wants(...all), says('So')] })
    expect(called).toHaveLength(16)
    expect(bodies[1]?.messages.filter(({ role }) => role === 'tool')).toHaveLength(20)
  })

  test('fails if it calls tools for more rounds than it may, also after another attempt', async () => {
    const again = wants(['find', '{"query":"a"}'])
    const { end, called } = await play({
      node: { max_tool_rounds: 2 },
      says: [again, again, again],
      attempt: 3,
    })
    expect(end).toMatchObject({ code: 'tool_rounds_exceeded', permanent: true })
    expect(called).toHaveLength(2)
  })

  test('fails with a tool that cannot be reached, for its next attempt to try', async () => {
    const failed: CallEnd = { state: 'failed', code: 'refused', message: 'No', permanent: false }
    const all = Array.from({ length: 8 }, (): [string, string] => ['find', '{"query":"a"}'])
    const { end, bodies, called } = await play({ says: [wants(...all)], answers: () => failed, attempt: 2 })
    expect(end).toMatchObject({ code: 'refused', permanent: false })
    // No other call begins after the failure.
    expect(called).toHaveLength(1)
    expect(bodies).toHaveLength(1)
  })

  test('gives an answer that does not fit once more in each attempt, after the same calls', async () => {
    const script = [wants(['find', '{"query":"a"}']), says('no JSON'), says('{"topic":"x"}')]
    const node = { output_schema: { type: 'object', properties: { topic: { type: 'string' } } } }
    const first = await play({ says: script, node })
    expect(first.end).toMatchObject({ code: 'unreadable_answer', permanent: false })
    const second = await play({ says: script, node, attempt: 2 })
    expect(second.end).toMatchObject(succeeded({ topic: 'x' }))
    expect(second.keys).toEqual(['ask/0', 'ask/1', 'ask/2'])
    expect(second.called).toEqual(first.called)
  })
})

import { describe, expect, test } from '@jest/globals'
import { hashOf } from '../../lib/ai/canonical.ts'
import type { Code } from '../../lib/ai/findings.ts'
import type { Lookups } from '../../lib/ai/lookups.ts'
import { validate } from '../../lib/ai/validate.ts'
import { lookups, shout, specOf } from '../support/ai/specs.ts'

// What validation finds in a draft.

/** The errors as `node pointer code`, in order; the pointer without the node's own. */
async function found(draft: unknown, more: Partial<Lookups> = {}): Promise<string[]> {
  const { nodes, others } = await validate(draft, lookups(more))
  const ofNodes = Object.entries(nodes).flatMap(([name, list]) =>
    list.map(({ pointer, code }) => `${name} ${pointer.replace(`/nodes/${name}`, '')} ${code}`),
  )
  return [...ofNodes, ...others.map(({ pointer, code }) => `- ${pointer} ${code}`)].toSorted()
}

const template = (value: unknown, more: object = {}) => ({ kind: 'template', value, ...more })
const llm = (content: string, more: object = {}) => ({
  kind: 'llm',
  model: 'fast',
  messages: [{ role: 'user', content }],
  ...more,
})

const aServer: Lookups['tool'] = async (_, name) => ({
  input_schema: null,
  output_schema: null,
  ...(name === null ? { are_several: true } : {}),
})
const use = (name: string) => ({ kind: 'tool', tool: 'docs', name })

const triage = specOf(
  {
    classify: llm('Which topic has this? ${input.text}', {
      output_schema: {
        type: 'object',
        properties: { topic: { enum: ['billing', 'other'] }, sure: { type: 'number' } },
        required: ['topic', 'sure'],
      },
    }),
    route: {
      kind: 'switch',
      needs: ['classify'],
      cases: [{ name: 'billing', when: 'nodes.classify.output.topic == "billing"' }],
      default: 'other',
      on_error: { value: 'other' },
    },
    find: { kind: 'retrieve', needs: ['route.billing'], collection: 'manuals', query: '${input.text}' },
    answer: llm('Answer from these: ${nodes.find.output.passages.map(p, p.text)}', { needs: ['find'] }),
    ask: {
      kind: 'approve',
      needs: ['route.other'],
      message: 'Who answers?',
      deadline_sec: 60,
      on_error: { goto: 'sorry' },
    },
    sorry: template('We answer later'),
    reply: { kind: 'merge', take: 'first', needs: ['answer', 'sorry'] },
    each: {
      kind: 'map',
      items: 'input.tags',
      do: {
        kind: 'tool',
        tool: 'docs',
        name: 'search',
        arguments: { query: '${item}', most: '${index + 1}' },
      },
    },
    again: {
      kind: 'map',
      needs: ['each'],
      items: 'nodes.each.output',
      do: template('${item.hits.size() + index}', { on_error: { value: 0 } }),
    },
    loud: { kind: 'workflow', needs: ['reply'], workflow: 'shout', input: { text: '${nodes.reply.output}' } },
    post: {
      kind: 'http',
      needs: ['loud'],
      method: 'POST',
      url: 'https://example.com/${input.text}',
      body: { loud: '${nodes.loud.output.loud}', counts: '${nodes.again.output}' },
    },
  },
  { output: { reply: '${nodes.reply.output}', status: '${nodes.post.output.status}' } },
)

describe('a draft', () => {
  test('without errors has a plan with the types of all values', async () => {
    const withNeed = structuredClone(triage) as { nodes: Record<string, { needs?: string[] }> }
    withNeed.nodes['post']?.needs?.push('again')
    const { nodes, others, valid } = await validate(withNeed, lookups())
    expect({ nodes, others }).toEqual({ nodes: {}, others: [] })
    expect(valid?.spec).toBe(withNeed)
    const output = (name: string) => valid?.plan.nodes[name]?.output
    expect(output('classify')).toEqual({
      object: { topic: 'string', sure: 'number' },
      required: ['topic', 'sure'],
    })
    expect(output('route')).toBe('string')
    expect(output('reply')).toBe('string')
    expect(valid?.plan.nodes['each']).toEqual({
      output: { list: { object: { hits: { list: 'string' } }, required: ['hits'] } },
      item: 'string',
      uses: [],
    })
    expect(output('again')).toEqual({ list: 'integer' })
    expect(valid?.plan.nodes['post']?.uses).toEqual(['again', 'loud'])
    expect(valid?.plan.output).toEqual({
      type: { object: { reply: 'string', status: 'integer' }, required: ['reply', 'status'] },
      uses: ['post', 'reply'],
    })
  })

  test('is told all its errors at once, by node', async () => {
    const draft = specOf(
      {
        one: { kind: 'llm', model: 'fast' },
        two: template('${input.nothing}', { wrong: true }),
        three: template('${input.nothing}'),
        four: llm('${nodes.gone.output} ${1 +}', { model: 'slow' }),
        five: template(1, { needs: ['six'] }),
        six: template(1, { needs: ['five'] }),
      },
      { budget: { usd: 100, wall_sec: 600 } },
    )
    expect(await found(draft)).toEqual([
      '- /budget/usd budget_too_high',
      'five /needs cycle',
      'four /messages/0/content expression_invalid',
      'four /messages/0/content unknown_reference',
      'four /model model_unknown',
      'one /messages invalid_field',
      'six /needs cycle',
      'three /value unknown_reference',
      'two /wrong invalid_field',
    ])
  })

  test.each<[code: Code, pointer: string, node: object]>([
    ['unknown_reference', '/needs/0', template(1, { needs: ['gone'] })],
    ['unknown_reference', '/needs/0', template(1, { needs: ['base.case'] })],
    ['unknown_reference', '/needs/0', template(1, { needs: ['fork.c'] })],
    ['unknown_reference', '/value', template('${nodes.base.output}')],
    ['unknown_reference', '/value', template('${nodes.it.output}', { needs: ['base'] })],
    ['unknown_reference', '/value', template('${nodes.base.outputs}', { needs: ['base'] })],
    ['unknown_reference', '/value', template('${item}')],
    ['unknown_reference', '/on_error/goto', template(1, { on_error: { goto: 'gone' } })],
    ['unknown_reference', '/value', template('${[1].map(x, y)}')],
    ['cycle', '/needs', template(1, { needs: ['it'] })],
    ['cycle', '/needs', template(1, { on_error: { goto: 'it' } })],
    ['cycle', '/workflow', { kind: 'workflow', workflow: 'self', input: { text: '' } }],
    ['unreachable', '/when', template(1, { when: 'false' })],
    ['expression_invalid', '/value', template('${')],
    ['expression_invalid', '/value', template('${}')],
    ['expression_invalid', '/value', template('${1 + }')],
    ['expression_invalid', '/value', template('${input.text.matches("a")}')],
    ['expression_invalid', '/value', template('${nodes.map(n, n)}')],
    ['expression_invalid', '/value', template('${nodes[input.text]}')],
    ['expression_invalid', '/value', template('${re(input.text, "(")}')],
    ['expression_invalid', '/value', template('${b"bytes"}')],
    ['expression_invalid', '/value', template('${bytes("text")}')],
    ['type_mismatch', '/when', template(1, { when: 'input.text' })],
    ['type_mismatch', '/value', template('${input.text + 1}')],
    ['type_mismatch', '/items', { kind: 'map', items: 'input.text', do: template(1) }],
    ['type_mismatch', '/cases/0/when', { kind: 'switch', cases: [{ name: 'a', when: 'input.count' }] }],
    ['type_mismatch', '/arguments/query', { kind: 'tool', tool: 'docs' }],
    [
      'type_mismatch',
      '/arguments/query',
      { kind: 'tool', tool: 'docs', arguments: { query: '${input.count}' } },
    ],
    ['type_mismatch', '/arguments/q', { kind: 'tool', tool: 'docs', arguments: { query: '', q: 1 } }],
    ['type_mismatch', '/input/text', { kind: 'workflow', workflow: 'shout', input: { text: 1 } }],
    ['type_mismatch', '/on_error/value', llm('', { on_error: { value: 1 } })],
    [
      'type_mismatch',
      '/do/on_error/value',
      { kind: 'map', items: '[1]', do: { ...llm(''), on_error: { value: 1 } } },
    ],
    [
      'unknown_reference',
      '/on_error/value',
      { kind: 'switch', cases: [{ name: 'a', when: 'true' }], on_error: { value: 'b' } },
    ],
    ['model_unknown', '/model', llm('', { model: 'slow' })],
    ['tool_missing', '/tool', { kind: 'tool', tool: 'gone' }],
    ['tool_missing', '/tools/1', llm('', { tools: [{ tool: 'docs' }, { tool: 'docs', name: 'none' }] })],
    ['tool_missing', '/do/tool', { kind: 'map', items: '[1]', do: { kind: 'tool', tool: 'gone' } }],
    ['collection_missing', '/collection', { kind: 'retrieve', collection: 'gone', query: '' }],
    ['workflow_missing', '/workflow', { kind: 'workflow', workflow: 'gone', input: {} }],
    ['depth_too_high', '/workflow', { kind: 'workflow', workflow: 'deep', input: { text: '' } }],
    ['budget_too_low', '/at_once', { kind: 'map', items: 'input.tags', at_once: 8, do: llm('${item}') }],
    ['tool_not_callable', '/tool', { kind: 'tool', tool: 'local', name: 'read' }],
    ['tool_not_callable', '/tools/0', llm('', { tools: [{ tool: 'local' }] })],
    ['budget_too_high', '/timeout_sec', llm('', { timeout_sec: 601 })],
    ['budget_too_high', '/deadline_sec', { kind: 'approve', message: '', deadline_sec: 601 }],
    ['schema_invalid', '/output_schema', llm('', { output_schema: { type: 'strange' } })],
    ['schema_invalid', '/output_schema', llm('', { output_schema: { pattern: '(?=a)' } })],
    ['schema_invalid', '/output_schema', llm('', { output_schema: { $ref: 'https://example.com/s' } })],
    ['invalid_field', '/kind', { kind: 'code' }],
    ['invalid_field', '/needs', { kind: 'merge', take: 'first' }],
    ['invalid_field', '/needs/1', template(1, { needs: ['base', 'base'] })],
    ['invalid_field', '/value', { kind: 'template' }],
    ['invalid_field', '/items', { kind: 'map', items: '', do: template(1) }],
    ['invalid_field', '/max_items', { kind: 'map', items: '[1]', max_items: 1_001, do: template(1) }],
    ['invalid_field', '/at_once', { kind: 'map', items: '[1]', at_once: 17, do: template(1) }],
    ['invalid_field', '/do/when', { kind: 'map', items: '[1]', do: template(1, { when: 'true' }) }],
  ])('has %s at %s of a node: case %#', async (code, pointer, node) => {
    const deep = { ...shout, depth: 5 }
    const self = { ...shout, calls: ['wf-other', 'wf-self'] }
    const workflow: Lookups['workflow'] = async (reference) =>
      ({ shout, deep, self })[reference as 'shout'] ?? null
    const fork = { kind: 'switch', cases: [{ name: 'a', when: 'true' }] }
    const errors = await found(specOf({ base: template(1), fork, it: node }), { workflow })
    expect(errors).toEqual([`it ${pointer} ${code}`])
  })

  test('whose connector is gone says so at each node that calls it', async () => {
    const models = { fast: { connector: 'gone', model: 'm' }, spare: { connector: 'openai', model: 'm' } }
    expect(await found(specOf({ a: llm(''), b: llm(''), c: template(1) }, { models }))).toEqual([
      '- /models/spare/model model_unknown',
      'a /models/fast/connector connector_missing',
      'b /models/fast/connector connector_missing',
    ])
  })

  test('names the cases after one that is always true, and what waits for them', async () => {
    const cases = [
      { name: 'a', when: 'true' },
      { name: 'b', when: 'input.text == ""' },
    ]
    const draft = specOf({
      fork: { kind: 'switch', cases, default: 'c' },
      a: template(1, { needs: ['fork.a'] }),
      b: template(1, { needs: ['fork.b'] }),
      after: template(1, { needs: ['b', 'fork.c'] }),
    })
    expect(await found(draft)).toEqual([
      'after /needs unreachable',
      'b /needs unreachable',
      'fork /cases/1 unreachable',
      'fork /default unreachable',
    ])
  })

  test('names what waits for a cycle', async () => {
    const draft = specOf({
      a: template(1, { needs: ['b'] }),
      b: template(1, { on_error: { goto: 'a' }, needs: ['a'] }),
      after: template(1, { needs: ['a'] }),
    })
    expect(await found(draft)).toEqual(['a /needs cycle', 'after /needs unreachable', 'b /needs cycle'])
  })

  test('may refer to an error where it handles one', async () => {
    const draft = specOf({
      a: llm('', { on_error: { goto: 'b' } }),
      b: template('${has(nodes.a.error) ? nodes.a.error.message : "none"}'),
    })
    expect(await found(draft)).toEqual([])
  })

  test('passes types through ten references', async () => {
    const chain = Array.from({ length: 10 }, (_, at) => [
      `n${at}`,
      at === 0
        ? template({ deep: '${input.count}' })
        : template({ deep: `\${nodes.n${at - 1}.output}` }, { needs: [`n${at - 1}`] }),
    ])
    const path = Array.from({ length: 10 }, () => 'deep').join('.')
    const draft = (end: string) =>
      specOf(Object.fromEntries(chain), { output: `\${nodes.n9.output.${path}${end}}` })
    expect(await found(draft(' + 1'))).toEqual([])
    expect(await found(draft(' + "x"'))).toEqual(['- /output type_mismatch'])
    expect(await found(draft('.deeper'))).toEqual(['- /output type_mismatch'])
  })

  test('must name one tool of a server that has several, unless a model chooses', async () => {
    const whole = { kind: 'tool', tool: 'docs' }
    const draft = specOf({ a: whole, b: use('x'), c: llm('', { tools: [{ tool: 'docs' }] }) })
    expect(await found(draft, { tool: aServer })).toEqual(['a /name invalid_field'])
  })

  test('is not wrong about a model of which the provider does not say whether it has it', async () => {
    const models = { fast: { connector: 'openai', model: 'new' } }
    expect(await found(specOf({ a: llm('') }, { models }), { model: async () => null })).toEqual([])
    expect(await found(specOf({ a: llm('') }, { models }))).toEqual(['a /models/fast/model model_unknown'])
  })

  test('looks each thing up once', async () => {
    const asked: string[] = []
    const tool: Lookups['tool'] = async (reference, name) => {
      asked.push(`${reference} ${name}`)
      return { input_schema: null, output_schema: null }
    }
    await validate(
      specOf({ a: use('x'), b: use('x'), c: use('y'), d: llm('', { tools: [{ tool: 'docs', name: 'x' }] }) }),
      lookups({ tool }),
    )
    expect(asked).toEqual(['docs x', 'docs y'])
  })
})

test('Validation changes nothing of a draft, so its hash is that of what was validated', async () => {
  const draft = specOf({ a: { kind: 'template', value: { z: 1, a: '${input.text}' } } })
  const before = hashOf(draft)
  const { valid } = await validate(draft, lookups())
  expect(hashOf(valid?.spec)).toBe(before)
})

/** Validates a map of calls with such a budget and model. */
const mapOfCalls = (tokens: number, model: object, map: object = {}) =>
  validate(
    specOf(
      { all: { kind: 'map', items: 'input.tags', do: llm('${item}'), ...map } },
      {
        budget: { tokens, wall_sec: 600 },
        models: { fast: { connector: 'openai', model: 'gpt-4o', ...model } },
      },
    ),
    lookups(),
  )

test('a budget without room for the calls of a map is refused with the numbers, one with room is not', async () => {
  const { nodes } = await mapOfCalls(50_000, {})
  expect(nodes['all']?.map(({ message }) => message)).toEqual([
    'makes 4 calls at once, each of which reserves 32768 tokens for its answer, because its model has no max_tokens: the run’s tokens (50000) have room for 2',
  ])
  const bounded = { parameters: { max_tokens: 1_000 } }
  expect((await mapOfCalls(2_000, bounded)).nodes['all']).toMatchObject([{ code: 'budget_too_low' }])
  for (const [tokens, model, map] of [
    [100_000, {}, {}],
    [4_000, bounded, {}],
    [500, { parameters: { max_tokens: 400 } }, { at_once: 1 }],
    [40_000, {}, { max_items: 2 }],
  ] as const)
    expect((await mapOfCalls(tokens, model, map)).valid).not.toBeNull()
})

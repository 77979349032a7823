import { describe, expect, test } from '@jest/globals'
import { inputHash, namedBy } from '../../lib/ai/node-input.ts'
import type { NodeSpec } from '../../lib/ai/node-kinds.ts'
import { validate } from '../../lib/ai/validate.ts'
import { lookups, specOf } from '../support/ai/specs.ts'

// What names the input of a node, by which a retry finds outputs to take over.

const ask = {
  kind: 'llm',
  model: 'fast',
  messages: [{ role: 'user', content: '${nodes.count.output} of ${input.text}' }],
  needs: ['count'],
}
const count = { kind: 'template', value: '${input.count}' }
const models = { fast: { connector: 'openai', model: 'gpt-4o-mini', parameters: { seed: 1 } } }
const given = { given: '{"input":{"text":"a"},"nodes":{}}', nodes: {} }

async function hashOf(
  nodes: Record<string, unknown>,
  {
    more = {},
    pinned = [],
    values = given,
  }: { more?: object; pinned?: object[]; values?: typeof given } = {},
): Promise<string> {
  const { valid, ...faults } = await validate(specOf(nodes, { models, ...more }), lookups())
  if (!valid) throw new Error(JSON.stringify(faults))
  return inputHash(valid, 'ask', pinned, values)
}

describe('the hash of a node’s input', () => {
  test('is the same for the same, whatever the order of fields and the rest of the spec', async () => {
    const { kind, ...rest } = ask
    const others = { more: { budget: { wall_sec: 60 }, output: 'other' } }
    const later = { kind: 'template', value: 'later' }
    expect(await hashOf({ later, ask: { ...rest, kind }, count }, others)).toBe(await hashOf({ count, ask }))
  })

  test.each<[string, () => Promise<string>]>([
    ['the node', () => hashOf({ count, ask: { ...ask, messages: [{ role: 'user', content: 'other' }] } })],
    [
      'the model',
      () => hashOf({ count, ask }, { more: { models: { fast: { connector: 'openai', model: 'gpt-4o' } } } }),
    ],
    [
      'the parameters of the model',
      () => {
        const fast = { ...models.fast, parameters: { seed: 2 } }
        return hashOf({ count, ask }, { more: { models: { fast } } })
      },
    ],
    [
      'something that it uses',
      () => hashOf({ count, ask }, { pinned: [{ kind: 'tool', id: '1', version: 2 }] }),
    ],
    ['the values', () => hashOf({ count, ask }, { values: { ...given, given: '{"input":{"text":"b"}}' } })],
    [
      'what a switch chose',
      () =>
        hashOf(
          { count, ask },
          { values: { ...given, nodes: { count: { status: 'succeeded', case: 'a' } } } },
        ),
    ],
    ['the type of a value', () => hashOf({ count: { kind: 'template', value: 'text' }, ask })],
  ])('differs with %s', async (_, other) => {
    expect(await other()).not.toBe(await hashOf({ count, ask }))
  })
})

test('A node names its connector, tools, collection and workflow, also in what a map does', () => {
  const names = (node: object) => namedBy({ models }, node as NodeSpec)
  expect(names({ ...ask, tools: [{ tool: 'docs', name: 'find' }] })).toMatchObject({
    models: [models.fast],
    connector: ['openai'],
    tool: ['docs'],
  })
  expect(names({ kind: 'map', items: 'input.tags', do: ask })).toMatchObject({ models: [models.fast] })
  expect(names({ kind: 'map', items: 'input.tags', do: { kind: 'tool', tool: 'docs' } }).tool).toEqual([
    'docs',
  ])
  expect(names({ kind: 'retrieve', collection: 'manuals', query: '' }).collection).toEqual(['manuals'])
  expect(names({ kind: 'workflow', workflow: 'shout', input: {} }).workflow).toEqual(['shout'])
})

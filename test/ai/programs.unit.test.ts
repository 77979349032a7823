import { afterAll, expect, test } from '@jest/globals'
import { ExpressionPool } from '../../lib/ai/expression-pool.ts'
import type { NodeSpec } from '../../lib/ai/node-kinds.ts'
import { type Plan, variablesOf } from '../../lib/ai/plan.ts'
import { type NodeResult, programOf, variablesJson } from '../../lib/ai/programs.ts'
import type { Spec } from '../../lib/ai/spec.ts'
import { validate } from '../../lib/ai/validate.ts'
import { lookups, specOf } from '../support/ai/specs.ts'

// From a valid spec to the values of a node's fields, as a run evaluates them.

const pool = new ExpressionPool(1)
afterAll(() => pool.close())

const draft = specOf({
  count: { kind: 'template', value: { n: '${input.count}', words: ['${input.text}', 'more'] } },
  gone: { kind: 'http', method: 'GET', url: 'https://example.com/', on_error: { goto: 'ask' } },
  ask: {
    kind: 'llm',
    needs: ['count'],
    when: 'nodes.count.output.n > 1',
    model: 'fast',
    messages: [
      { role: 'system', content: '${nodes.count.output.n}' },
      { role: 'user', content: '${nodes.gone.status}: ${nodes.gone.error.message}' },
    ],
  },
  each: {
    kind: 'map',
    needs: ['count'],
    items: 'nodes.count.output.words',
    do: { kind: 'tool', tool: 'docs', arguments: { query: '${item} ${index}', most: '${index + 1}' } },
  },
})

async function validated(): Promise<{ spec: Spec; plan: Plan }> {
  const { valid, nodes, others } = await validate(draft, lookups())
  if (!valid) throw new Error(JSON.stringify({ nodes, others }))
  return valid
}

const results: Record<string, NodeResult> = {
  count: { status: 'succeeded', output: '{"n":2,"words":["one","more"]}' },
  gone: { status: 'failed', error: { code: 'timeout', message: 'it took "too" long' } },
}

test('A node has its fields by pointer', async () => {
  const { spec, plan } = await validated()
  const { when, fields, ofItem } = programOf(spec.nodes['ask'] as NodeSpec)
  expect(when).toEqual({ expression: 'nodes.count.output.n > 1' })
  expect(ofItem).toEqual({})
  const uses = plan.nodes['ask']?.uses ?? []
  expect(uses).toEqual(['count', 'gone'])
  const values = await pool.evaluate({
    key: 'ask',
    variables: variablesOf(plan, uses),
    wanted: { '/when': { expression: 'nodes.count.output.n > 1' }, ...fields },
    given: variablesJson('{"text":"x"}', results),
  })
  expect(JSON.parse(values)).toEqual({
    '/when': true,
    '/messages/0/content': '2',
    '/messages/1/content': 'failed: it took "too" long',
  })
})

test('A map has its list, and the fields of each item', async () => {
  const { spec, plan } = await validated()
  const { when, fields, ofItem } = programOf(spec.nodes['each'] as NodeSpec)
  expect(when).toBeNull()
  expect(fields).toEqual({ '/items': { expression: 'nodes.count.output.words' } })
  const { uses = [], item } = plan.nodes['each'] ?? {}
  expect(item).toBe('string')
  const values = await pool.evaluate({
    key: 'each',
    variables: variablesOf(plan, uses, item),
    wanted: ofItem,
    given: variablesJson('{"text":"x"}', results, { item: '"two"', index: 1 }),
  })
  expect(JSON.parse(values)).toEqual({ '/do/arguments': { query: 'two 1', most: 2 } })
})

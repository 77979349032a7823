import { describe, expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import { bounds } from '../../lib/ai/bounds.ts'
import { validate } from '../../lib/ai/validate.ts'
import { lookups, specOf } from '../support/ai/specs.ts'
import { isLong } from '../support/long.ts'
import { seed } from '../support/sampled.ts'

// Specs that were written to break the reader: each is answered with its errors.

const template = (value: unknown, more: object = {}) => ({ kind: 'template', value, ...more })
const codesOf = async (draft: unknown): Promise<Set<string>> => {
  const { nodes, others, valid } = await validate(draft, lookups())
  const codes = [...Object.values(nodes).flat(), ...others].map(({ code }) => code)
  expect(valid === null).toBe(codes.length > 0)
  return new Set(codes)
}
const nested = (depth: number, leaf: unknown): unknown => (depth === 0 ? leaf : [nested(depth - 1, leaf)])
const many = (count: number, node: (at: number) => object) =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`n${at}`, node(at)]))

/** Names of the nodes before. */
const needs = (at: number) =>
  Array.from({ length: Math.min(at, bounds.needs) }, (_, one) => `n${at - one - 1}`)
const last = (at: number) => `\${nodes.n${at - 1}.output}`

describe('a spec', () => {
  test.each<[what: string, draft: unknown, code: string]>([
    ['nothing', undefined, 'invalid_field'],
    ['null', null, 'invalid_field'],
    ['a list', [specOf({})], 'invalid_field'],
    ['no node', specOf({}), 'invalid_field'],
    [
      '100,000 levels',
      specOf({ a: template(JSON.parse(`${'['.repeat(100_000)}${']'.repeat(100_000)}`)) }),
      'too_large',
    ],
    ['33 levels', specOf({ a: template(nested(33, 1)) }), 'too_large'],
    ['a megabyte', specOf({ a: template('x'.repeat(1024 * 1024)) }), 'too_large'],
    ['201 nodes', specOf(many(201, () => template(1))), 'invalid_field'],
    ['a text of 70,000 characters', specOf({ a: template('x'.repeat(70_000)) }), 'expression_invalid'],
    ['half a character', specOf({ a: template('\ud800') }), 'invalid_field'],
    ['__proto__', specOf({ a: template(JSON.parse('{"__proto__": {"when": "true"}}')) }), 'invalid_field'],
    ['a node constructor', specOf({ constructor: template(1) }), 'invalid_field'],
    [
      'a node that needs constructor',
      specOf({ a: template(1, { needs: ['constructor'] }) }),
      'unknown_reference',
    ],
    [
      'a case of a prototype',
      specOf({
        a: { kind: 'switch', cases: [{ name: 'x', when: 'true' }] },
        b: template(1, { needs: ['a.constructor'] }),
      }),
      'unknown_reference',
    ],
    [
      'a model of a prototype',
      specOf({ a: { kind: 'llm', model: 'valueof', messages: [{ role: 'user', content: '' }] } }),
      'model_unknown',
    ],
    [
      '64 KiB of expressions and more',
      specOf(many(20, () => template(`\${"${'x'.repeat(4_000)}"}`))),
      'too_large',
    ],
    [
      '300 tools',
      specOf({
        ...many(10, (at) => ({
          kind: 'llm',
          model: 'fast',
          messages: [{ role: 'user', content: '' }],
          tools: Array.from({ length: 30 }, (_, tool) => ({ tool: `t${at}-${tool}` })),
        })),
      }),
      'too_large',
    ],
  ])('with %s is refused', async (_, draft, code) => {
    expect([...(await codesOf(draft))]).toContain(code)
  })

  test('of 200 nodes that all need those before is read', async () => {
    const draft = specOf(many(bounds.nodes, (at) => template('${input.text}', { needs: needs(at) })))
    expect([...(await codesOf(draft))]).toEqual([])
  })

  test('of 200 nodes in one circle is refused at each', async () => {
    const draft = specOf(many(200, (at) => template(1, { needs: [`n${(at + 1) % 200}`] })))
    const { nodes } = await validate(draft, lookups())
    expect(Object.values(nodes).map(([first]) => first?.code)).toEqual(
      Array.from({ length: 200 }, () => 'cycle'),
    )
  })

  test('whose outputs double with each node has outputs of any type from some node on', async () => {
    const draft = specOf(
      many(100, (at) =>
        at === 0 ? template({ a: 1 }) : template({ a: last(at), b: last(at) }, { needs: [`n${at - 1}`] }),
      ),
    )
    const { valid } = await validate(draft, lookups())
    expect(valid?.plan.nodes['n99']?.output).not.toBeUndefined()
    expect(JSON.stringify(valid?.plan).length).toBeLessThan(bounds.planBytes)
  })

  test('may have the most expressions that are allowed', async () => {
    const expression =
      'input.list.map(x, x.a + input.list.map(y, y.b * 2 + 1).size()).filter(z, z > 3).size()'
    const input_schema = {
      type: 'object',
      properties: {
        list: {
          type: 'array',
          items: { type: 'object', properties: { a: { type: 'integer' }, b: { type: 'number' } } },
        },
      },
    }
    const draft = specOf(
      many(180, () => template([1, 2, 3, 4].map(() => `\${${expression}}`))),
      { input_schema },
    )
    expect([...(await codesOf(draft))]).toEqual([])
  })

  test('of any JSON has errors or a plan', async () => {
    const field = fc.oneof(
      fc.jsonValue({ maxDepth: 3 }),
      fc.constantFrom(
        '${',
        '${input}',
        '${nodes.a.output}',
        'nodes',
        'true',
        'false',
        '[1]',
        'a.b',
        'constructor',
        1,
        0,
        -1,
        {},
        [],
      ),
    )
    const names = [
      'needs',
      'when',
      'value',
      'on_error',
      'cases',
      'default',
      'items',
      'do',
      'messages',
      'model',
      'take',
      'arguments',
      'tool',
      'url',
      'method',
      'headers',
      'body',
      'output_schema',
      'retry',
      'timeout_sec',
      'input',
      'workflow',
    ]
    const kinds = [
      'llm',
      'retrieve',
      'tool',
      'http',
      'workflow',
      'template',
      'switch',
      'map',
      'merge',
      'approve',
      'x',
    ]
    const node = fc
      .tuple(fc.constantFrom(...kinds), fc.dictionary(fc.constantFrom(...names), field, { maxKeys: 6 }))
      .map(([kind, fields]) => ({ kind, ...fields }))
    const draft = fc
      .tuple(
        fc.dictionary(fc.constantFrom('a', 'b', 'c', 'constructor', 'X'), fc.oneof(node, field)),
        fc.dictionary(
          fc.constantFrom('spec', 'input_schema', 'budget', 'models', 'nodes', 'output', 'x'),
          field,
          { maxKeys: 2 },
        ),
      )
      .map(([nodes, more]) => specOf(nodes, more))
    await fc.assert(
      fc.asyncProperty(draft, async (one) => {
        await codesOf(one)
      }),
      { seed, numRuns: isLong ? 20_000 : 1_000 },
    )
  })
})

import { afterAll, describe, expect, test } from '@jest/globals'
import { outcomeOf } from '../../activities/runner/kinds.ts'
import { NodeFault, withoutNoValue } from '../../activities/runner/node-faults.ts'
import { jsonAt } from '../../activities/runner/work.ts'
import { ExpressionPool } from '../../lib/ai/expression-pool.ts'
import { type NodeResult, variablesJson } from '../../lib/ai/programs.ts'
import { validate } from '../../lib/ai/validate.ts'
import type { Ended, NodeEnd } from '../../lib/runner-protocol.ts'
import { never, noApi, noTokens } from '../support/ai/runner-work.ts'
import { lookups, specOf } from '../support/ai/specs.ts'

// What the nodes of a runner do with the values that they get.

const pool = new ExpressionPool(1)
afterAll(() => pool.close())

let count = 0

/** Carries out one node of a valid spec, with the results of others. */
async function outcome(
  nodes: Record<string, unknown>,
  name: string,
  { input = { text: 'hello' }, results = {} }: { input?: object; results?: Record<string, NodeResult> } = {},
  cases: Record<string, string> = {},
): Promise<Ended> {
  const { valid, ...faults } = await validate(specOf(nodes), lookups())
  if (!valid) throw new Error(JSON.stringify(faults))
  const work = { api: noApi, callModel: never, tokens: noTokens, pool, ...valid, key: `${count++}` }
  const ends = Object.entries(results).map(([node, { status }]): [string, NodeEnd] => [
    node,
    { status, case: cases[node] ?? null },
  ])
  const begun = {
    done: null,
    given: variablesJson(JSON.stringify(input), results),
    nodes: Object.fromEntries(ends),
  }
  return outcomeOf(work, { run: 'run', name, attempt: 1, begun, signal: new AbortController().signal })
}

const said = (output: unknown): NodeResult => ({ status: 'succeeded', output: JSON.stringify(output) })
const ended = (output: unknown, chosen: string | null = null): Ended => ({
  status: 'succeeded',
  case: chosen,
  output: JSON.stringify(output),
})

describe('a template', () => {
  test('has its value, with the expressions in it evaluated', async () => {
    const say = {
      kind: 'template',
      value: { to: '${input.text}', all: ['${input.count}', 'and ${input.text}'] },
    }
    const end = await outcome({ say }, 'say', { input: { text: 'you', count: 3 } })
    expect(end).toEqual(ended({ to: 'you', all: [3, 'and you'] }))
  })

  test('sees the outputs of the nodes that it names', async () => {
    const nodes = {
      one: { kind: 'template', value: { n: 1 } },
      two: { kind: 'template', needs: ['one'], value: '${nodes.one.output.n} ${nodes.one.status}' },
    }
    expect(await outcome(nodes, 'two', { results: { one: said({ n: 1 }) } })).toEqual(ended('1 succeeded'))
  })

  test('is skipped if its `when` is false, and its value is then not evaluated', async () => {
    const say = { kind: 'template', when: "input.text == 'never'", value: '${input.tags[7]}' }
    expect(await outcome({ say }, 'say')).toEqual({ status: 'skipped' })
  })

  test('fails for good if an expression has no value', async () => {
    const say = { kind: 'template', value: '${input.tags[7]}' }
    const failing = withoutNoValue(() => outcome({ say }, 'say', { input: { text: '', tags: [] } }))
    const fault = await failing.catch((error: unknown) => error)
    expect(fault).toBeInstanceOf(NodeFault)
    expect(fault).toMatchObject({ code: 'expression_failed', permanent: true })
  })
})

const route = (more: object = {}) => ({
  route: {
    kind: 'switch',
    cases: [
      { name: 'short', when: 'size(input.text) < 3' },
      { name: 'tagged', when: 'input.tags[0] == "a"' },
    ],
    ...more,
  },
})

describe('a switch', () => {
  test('has the first case that is true, and asks no further', async () => {
    expect(await outcome(route(), 'route', { input: { text: 'hi' } })).toEqual(ended('short', 'short'))
    const tagged = { input: { text: 'longer', tags: ['a'] } }
    expect(await outcome(route(), 'route', tagged)).toEqual(ended('tagged', 'tagged'))
  })

  test('has its default if none is true, and fails without one', async () => {
    const none = { input: { text: 'longer', tags: ['b'] } }
    expect(await outcome(route({ default: 'other' }), 'route', none)).toEqual(ended('other', 'other'))
    await expect(outcome(route(), 'route', none)).rejects.toMatchObject({ code: 'no_case' })
  })
})

const merging = (take: string, needs = ['a', 'b', 'c']) => ({
  a: { kind: 'template', value: 1 },
  b: { kind: 'template', value: 2 },
  c: { kind: 'template', value: 3 },
  all: { kind: 'merge', needs, take },
})

describe('a merge', () => {
  const results = { a: { status: 'skipped' as const }, b: said(2), c: said(3) }

  test.each([
    ['first', 2],
    ['list', [2, 3]],
    ['object', { b: 2, c: 3 }],
  ])('takes %s of the needs that succeeded', async (take, expected) => {
    expect(await outcome(merging(take), 'all', { results })).toEqual(ended(expected))
  })

  test('takes the first in the order of its needs', async () => {
    expect(await outcome(merging('first', ['c', 'b', 'a']), 'all', { results })).toEqual(ended(3))
  })

  test('leaves out a switch that chose another case', async () => {
    const cases = [
      { name: 'x', when: 'input.text == "x"' },
      { name: 'y', when: 'input.text == "y"' },
    ]
    const nodes = {
      a: { kind: 'template', value: 1 },
      fork: { kind: 'switch', cases },
      all: { kind: 'merge', needs: ['fork.x', 'a'], take: 'object' },
    }
    const both = { results: { a: said(1), fork: said('y') } }
    expect(await outcome(nodes, 'all', both, { fork: 'y' })).toEqual(ended({ a: 1 }))
    expect(await outcome(nodes, 'all', both, { fork: 'x' })).toEqual(ended({ fork: 'y', a: 1 }))
  })

  test('passes on what is large, as it is', async () => {
    const nodes = {
      b: { kind: 'template', value: '${input.tags}' },
      all: { kind: 'merge', needs: ['b'], take: 'first' },
    }
    const large = Array.from({ length: 200_000 }, (_, at) => `tag ${at}`)
    expect(await outcome(nodes, 'all', { results: { b: said(large) } })).toEqual(ended(large))
  })
})

test('the JSON of a value is taken out of what was evaluated without reading it', () => {
  expect(jsonAt('/a', '{"/a":{"b":[1]}}')).toBe('{"b":[1]}')
  expect(() => jsonAt('/a', '{"/b":1}')).toThrow('is not what was evaluated')
})

import { describe, expect, test } from '@jest/globals'
import { graphOf } from '../../lib/ai/graph.ts'
import type { NodeSpec } from '../../lib/ai/node-kinds.ts'
import { rowFrom } from '../../lib/ai/rows.ts'
import type { States } from '../../lib/ai/schedule.ts'

// Which nodes one activity carries out one after the other.

const say = (needs: string[] = [], more: object = {}) =>
  ({ kind: 'template', needs, value: 1, ...more }) as unknown as NodeSpec
const rowOf = (
  nodes: Record<string, NodeSpec>,
  first: string,
  states: States = {},
  isFit: (name: string) => boolean = () => true,
) => rowFrom(graphOf(nodes), states, first, isFit)

const chain = (count: number): Record<string, NodeSpec> =>
  Object.fromEntries(Array.from({ length: count }, (_, at) => [`n${at}`, say(at > 0 ? [`n${at - 1}`] : [])]))
const succeeded = { is: 'succeeded' } as const

describe('a row', () => {
  test('has all nodes of a chain, and the output', () => {
    expect(rowOf(chain(5), 'n0')).toEqual({ names: ['n0', 'n1', 'n2', 'n3', 'n4'], output: true })
    const states = { n0: succeeded, n1: { is: 'skipped' } as const }
    expect(rowOf(chain(4), 'n2', states)).toEqual({ names: ['n2', 'n3'], output: true })
  })

  test('has 16 nodes at most', () => {
    const { names, output } = rowOf(chain(20), 'n0')
    expect([names.length, names.at(-1), output]).toEqual([16, 'n15', false])
    expect(rowOf(chain(16), 'n0').output).toBe(true)
  })

  test('ends where several nodes start, and begins again behind them', () => {
    const nodes = { a: say(), b: say(['a']), c: say(['a']), d: say(['b', 'c']), e: say(['d']) }
    expect(rowOf(nodes, 'a')).toEqual({ names: ['a'], output: false })
    const joined = { a: succeeded, b: succeeded, c: succeeded }
    expect(rowOf(nodes, 'd', joined)).toEqual({ names: ['d', 'e'], output: true })
  })

  test('ends before a node that nothing leads to, which is skipped then', () => {
    const nodes = { a: say([], { on_error: { goto: 'rescue' } }), b: say(['a']), rescue: say() }
    expect(rowOf(nodes, 'a')).toEqual({ names: ['a'], output: false })
  })

  test('ends at a switch whose cases lead on', () => {
    const route = { kind: 'switch', cases: [{ name: 'x', when: 'true' }], default: 'y' } as NodeSpec
    const nodes = { route, x: say(['route.x']), y: say(['route.y']) }
    expect(rowOf(nodes, 'route')).toEqual({ names: ['route'], output: false })
  })

  test('has no node that is not fit for it', () => {
    expect(rowOf(chain(4), 'n0', {}, (name) => name !== 'n2')).toEqual({ names: ['n0', 'n1'], output: false })
  })

  test('has no output while something else is open', () => {
    const nodes = { a: say(), b: say() }
    expect(rowOf(nodes, 'a', { b: { is: 'running' } })).toEqual({ names: ['a'], output: false })
  })
})

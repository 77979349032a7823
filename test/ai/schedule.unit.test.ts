import { describe, expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import type { Edge, Graph, GraphNode } from '../../lib/ai/graph.ts'
import { graphOf } from '../../lib/ai/graph.ts'
import type { NodeSpec } from '../../lib/ai/node-kinds.ts'
import { rowFrom } from '../../lib/ai/rows.ts'
import { nextStep, type NodeState, type RunEnd, type States } from '../../lib/ai/schedule.ts'
import { isLong } from '../support/long.ts'
import { Dice } from '../support/random.ts'
import { seed } from '../support/sampled.ts'

// Joins: each node starts at most once, and every run ends, whatever its nodes do.

/** What a node does when it starts: `skip` is a `when` that is false. */
type Fate = { does: 'succeed'; case?: string } | { does: 'fail' } | { does: 'skip' }
type Fates = Record<string, Fate>

interface Run {
  end: RunEnd
  states: States
  starts: string[]
  /** Nodes that followed another one in its row. */
  inRows: number
}

/**
 * Carries the steps out; the dice say which running node ends next. `withRows`: nodes in a row follow each other without a step
 * between them, as on a runner; the dice say which are fit for that. Throws if a rule of runs is broken.
 */
function carryOut(graph: Graph, fates: Fates, dice: Dice, withRows = false): Run {
  const states: States = {}
  const starts: string[] = []
  let inRows = 0
  // Each round starts, skips or ends a node, so a run has at most two for each.
  for (let round = 0; round <= 2 * Object.keys(graph).length + 1; round++) {
    const step = nextStep(graph, states)
    for (const name of [...step.skip, ...step.start]) demand(!states[name], `${name} starts twice`)
    for (const name of step.skip) states[name] = { is: 'skipped' }
    const isIdle = !Object.values(states).some(({ is }) => is === 'running')
    const [first] = step.start
    if (withRows && isIdle && step.skip.length === 0 && first !== undefined && step.start.length === 1) {
      const began = carryOutRow(graph, states, fates, first, dice)
      starts.push(...began)
      inRows += began.length - 1
      continue
    }
    for (const name of step.start) states[name] = { is: 'running' }
    for (const name of step.cancel) states[name] = { is: 'cancelled' }
    starts.push(...step.start)
    if (step.end) return { end: step.end, states, starts, inRows }
    const running = Object.keys(states).filter((name) => states[name]?.is === 'running')
    if (running.length > 0) {
      const name = dice.one(running)
      states[name] = endOf(fates[name])
    }
  }
  throw new Error('The run does not end')
}

/** Carries a row out until one of its nodes does anything but succeed. Returns the nodes that have begun. */
function carryOutRow(graph: Graph, states: States, fates: Fates, first: string, dice: Dice): string[] {
  const row = rowFrom(graph, states, first, () => dice.chance(0.9))
  const began: string[] = []
  for (const name of row.names) {
    demand(!states[name], `${name} starts twice`)
    const end = endOf(fates[name])
    states[name] = end
    began.push(name)
    if (end.is !== 'succeeded' || end.case !== undefined) return began
  }
  const { start, skip, end } = nextStep(graph, states)
  if (row.output)
    demand(
      start.length + skip.length === 0 && end?.status === 'succeeded',
      'a row makes the output too early',
    )
  return began
}

function endOf(fate: Fate | undefined): NodeState {
  if (fate?.does === 'fail') return { is: 'failed' }
  if (fate?.does === 'skip') return { is: 'skipped' }
  return { is: 'succeeded', ...(fate?.case === undefined ? {} : { case: fate.case }) }
}

/**
 * The reference: asks each node what became of it, by asking its needs first. It knows no time and no order, and lets
 * nodes run after a failure that ends the run.
 */
function interpret(graph: Graph, fates: Fates): Map<string, NodeState> {
  const ends = new Map<string, NodeState>()
  const endOfNode = (name: string): NodeState => {
    const known = ends.get(name)
    if (known) return known
    const { edges } = graph[name] as GraphNode
    const gotos = edges.filter((edge) => edge.if === 'failure')
    const taken = edges.filter((edge) => isTaken(edge))
    const starts =
      edges.length === 0 || (gotos.length > 0 ? gotos.some((edge) => taken.includes(edge)) : taken.length > 0)
    const end: NodeState = starts ? endOf(fates[name]) : { is: 'skipped' }
    ends.set(name, end)
    return end
  }
  const isTaken = ({ from, if: condition }: Edge): boolean => {
    const end = endOfNode(from)
    if (condition === 'failure') return end.is === 'failed'
    const handling = graph[from]?.on_error
    const fallback = end.is === 'failed' && typeof handling === 'object' ? handling.value : null
    if (end.is !== 'succeeded' && !fallback) return false
    if (condition === 'success') return true
    return condition.case === (end.is === 'succeeded' ? end.case : fallback?.case)
  }
  for (const name of Object.keys(graph)) endOfNode(name)
  return ends
}

/** Compares a run with the reference. */
function check(graph: Graph, fates: Fates, dice: Dice, withRows = false): Run {
  const run = carryOut(graph, fates, dice, withRows)
  const { end, states, starts } = run
  const expected = interpret(graph, fates)
  const failures = [...expected].filter(
    ([name, { is }]) => is === 'failed' && graph[name]?.on_error === 'fail',
  )
  const isFailed = failures.length > 0
  demand(new Set(starts).size === starts.length, 'a node starts twice')
  demand(end.status === (isFailed ? 'failed' : 'succeeded'), `the run has ${end.status}`)
  for (const [name, state] of Object.entries(states)) {
    if (isFailed && state.is === 'cancelled') continue
    const wanted = JSON.stringify(expected.get(name))
    demand(JSON.stringify(state) === wanted, `${name} is ${state.is}, and not ${wanted}`)
  }
  if (end.status !== 'failed') demand(Object.keys(states).length === expected.size, 'a node has no end')
  else {
    demand(end.failures.length > 0, 'a run fails without a failure')
    demand(
      end.failures.every((name) => failures.some(([failed]) => failed === name)),
      'another node’s failure ended the run',
    )
  }
  return run
}

/** Thousands of runs: an `expect` for each takes seconds. */
function demand(isSo: boolean, otherwise: string): void {
  if (!isSo) throw new Error(otherwise)
}

const cases = ['a', 'b']

/** The same, most of whose nodes wait for the one before, succeed, and choose no case. */
const randomRows = (): typeof randomRun =>
  fc.tuple(randomRun, fc.array(fc.nat({ max: 9 }), { minLength: 24, maxLength: 24 })).map(([run, digits]) => {
    const { graph, fates } = structuredClone(run)
    for (const [at, digit] of digits.slice(0, Object.keys(graph).length).entries()) {
      const { edges } = graph[nameOf(at)] as GraphNode
      if (at > 0 && digit < 9) edges.push({ from: nameOf(at - 1), if: 'success' })
      if (digit < 8) fates[nameOf(at)] = { does: 'succeed' }
    }
    return { ...run, graph, fates }
  })

/** A graph without cycles: a node waits only for those before it. Every third or so is a switch. */
const randomRun = fc
  .integer({ min: 1, max: 24 })
  .chain((count) =>
    fc.tuple(
      ...Array.from({ length: count }, (_, at) => fc.tuple(edgesFrom(at), handling, fate)),
      fc.integer(),
    ),
  )
  .map((drawn) => {
    const nodes = drawn.slice(0, -1) as [Edge[], GraphNode['on_error'], Fate][]
    const graph: Graph = {}
    const fates: Fates = {}
    for (const [at, [edges, on_error, does]] of nodes.entries()) {
      // A goto edge leaves only a node that says goto.
      graph[nameOf(at)] = { edges: edges.filter((edge) => isPossible(edge, graph)), on_error }
      fates[nameOf(at)] = does
    }
    return { graph, fates, seed: drawn.at(-1) as number }
  })

const nameOf = (at: number): string => `n${String(at).padStart(2, '0')}`
const isPossible = ({ from, if: condition }: Edge, graph: Graph): boolean =>
  condition !== 'failure' || graph[from]?.on_error === 'goto'

const edgesFrom = (before: number): fc.Arbitrary<Edge[]> =>
  before === 0
    ? fc.constant([])
    : fc.uniqueArray(
        fc.record({
          from: fc.nat({ max: before - 1 }).map(nameOf),
          if: fc.oneof(
            { weight: 5, arbitrary: fc.constant('success' as const) },
            { weight: 2, arbitrary: fc.constant('failure' as const) },
            { weight: 2, arbitrary: fc.constantFrom(...cases).map((chosen) => ({ case: chosen })) },
          ),
        }),
        { maxLength: 5, selector: (edge) => JSON.stringify(edge) },
      )

const handling: fc.Arbitrary<GraphNode['on_error']> = fc.oneof(
  { weight: 2, arbitrary: fc.constant('fail' as const) },
  { weight: 4, arbitrary: fc.constant('goto' as const) },
  { weight: 3, arbitrary: fc.constantFrom(null, ...cases).map((chosen) => ({ value: { case: chosen } })) },
)

const fate: fc.Arbitrary<Fate> = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.constantFrom(...cases).map((chosen): Fate => ({ does: 'succeed', case: chosen })),
  },
  { weight: 3, arbitrary: fc.constant<Fate>({ does: 'succeed' }) },
  { weight: 2, arbitrary: fc.constant<Fate>({ does: 'fail' }) },
  { weight: 2, arbitrary: fc.constant<Fate>({ does: 'skip' }) },
)

/** What one need of a join did, and whether the join counts it. */
const needs: [
  pattern: string,
  node: Omit<GraphNode, 'edges'>,
  fate: Fate,
  edge: Edge['if'],
  counts: boolean,
][] = [
  ['succeeded', { on_error: 'fail' }, { does: 'succeed' }, 'success', true],
  ['skipped', { on_error: 'fail' }, { does: 'skip' }, 'success', false],
  ['chosen', { on_error: 'fail' }, { does: 'succeed', case: 'a' }, { case: 'a' }, true],
  ['not chosen', { on_error: 'fail' }, { does: 'succeed', case: 'b' }, { case: 'a' }, false],
  ['failed, with a value', { on_error: { value: { case: null } } }, { does: 'fail' }, 'success', true],
  [
    'failed, with another case',
    { on_error: { value: { case: 'b' } } },
    { does: 'fail' },
    { case: 'a' },
    false,
  ],
  ['failed, with goto', { on_error: 'goto' }, { does: 'fail' }, 'success', false],
]

/** All lists of that length with these elements. */
const lists = <T>(elements: readonly T[], length: number): T[][] =>
  length === 0 ? [[]] : lists(elements, length - 1).flatMap((list) => elements.map((one) => [...list, one]))

describe('a run', () => {
  const graphs = isLong ? 20_000 : 1_000
  test(`of ${graphs} random graphs ends as a plain interpreter says, and starts each node at most once`, () => {
    fc.assert(
      fc.property(randomRun, ({ graph, fates, seed: order }) => void check(graph, fates, new Dice(order))),
      { seed, numRuns: graphs },
    )
  })

  test(`of ${graphs} random graphs ends so if nodes follow each other in rows`, () => {
    let inRows = 0
    fc.assert(
      fc.property(randomRows(), ({ graph, fates, seed: order }) => {
        inRows += check(graph, fates, new Dice(order), true).inRows
      }),
      { seed, numRuns: graphs },
    )
    expect(inRows).toBeGreaterThan(graphs)
  })

  test('ends the same in whatever order its nodes end', () => {
    fc.assert(
      fc.property(randomRun, ({ graph, fates }) => {
        const ends = Array.from({ length: 5 }, (_, order) => carryOut(graph, fates, new Dice(order)))
        expect(new Set(ends.map(({ end }) => end.status)).size).toBe(1)
        if (ends[0]?.end.status !== 'succeeded') return
        for (const { states } of ends) expect(states).toEqual(ends[0].states)
      }),
      { seed, numRuns: isLong ? 2_000 : 200 },
    )
  })

  test.each([1, 2, 3, 4])('starts a join of %i needs once, for every pattern of what they did', (count) => {
    for (const pattern of lists(needs, count)) {
      const graph: Graph = { join: { edges: [], on_error: 'fail' } }
      const fates: Fates = { join: { does: 'succeed' } }
      for (const [at, [, node, does, edge]] of pattern.entries()) {
        graph[nameOf(at)] = { ...node, edges: [] }
        fates[nameOf(at)] = does
        graph['join']?.edges.push({ from: nameOf(at), if: edge })
      }
      const { end, states, starts } = carryOut(graph, fates, new Dice(seed))
      const isStarting = pattern.some(([, , , , counts]) => counts)
      const named = pattern.map(([name]) => name).join(', ')
      demand(end.status === 'succeeded', `${named}: the run has ${end.status}`)
      demand(
        states['join']?.is === (isStarting ? 'succeeded' : 'skipped'),
        `${named}: it is ${states['join']?.is}`,
      )
      demand(starts.filter((name) => name === 'join').length === (isStarting ? 1 : 0), `${named}: its starts`)
    }
  })

  test('cancels the siblings of a failure that nobody handles, and starts nothing more', () => {
    const graph: Graph = {
      bad: { edges: [], on_error: 'fail' },
      slow: { edges: [], on_error: 'fail' },
      later: { edges: [{ from: 'slow', if: 'success' }], on_error: 'fail' },
    }
    const running: States = { bad: { is: 'failed' }, slow: { is: 'running' } }
    expect(nextStep(graph, running)).toEqual({ start: [], skip: [], cancel: ['slow'], end: null })
    const step = nextStep(graph, { ...running, slow: { is: 'succeeded' } })
    expect(step).toEqual({ start: [], skip: [], cancel: [], end: { status: 'failed', failures: ['bad'] } })
  })

  test('that is cancelled cancels what runs, and then ends', () => {
    const graph: Graph = { a: { edges: [], on_error: 'fail' }, b: { edges: [], on_error: 'fail' } }
    expect(nextStep(graph, {}, true)).toEqual({
      start: [],
      skip: [],
      cancel: [],
      end: { status: 'cancelled' },
    })
    expect(nextStep(graph, { a: { is: 'running' } }, true)).toMatchObject({ cancel: ['a'], end: null })
    expect(nextStep(graph, { a: { is: 'cancelled' } })).toMatchObject({ end: { status: 'cancelled' } })
  })

  test('of a graph with a cycle, which validation refuses, ends all the same', () => {
    const graph: Graph = {
      a: { edges: [{ from: 'b', if: 'success' }], on_error: 'fail' },
      b: { edges: [{ from: 'a', if: 'success' }], on_error: 'fail' },
      c: { edges: [], on_error: 'fail' },
    }
    expect(nextStep(graph, {})).toMatchObject({ start: ['c'], end: null })
    expect(nextStep(graph, { c: { is: 'succeeded' } })).toMatchObject({
      end: { status: 'failed', failures: ['a', 'b'] },
    })
  })
})

const node = (more: object): NodeSpec => ({ kind: 'template', value: 1, ...more })

describe('the graph of a spec', () => {
  test('has an edge for each need, each case and each goto', () => {
    const graph = graphOf({
      handler: node({}),
      fork: { kind: 'switch', cases: [{ name: 'a', when: 'true' }], on_error: { value: 'a' } },
      work: node({ needs: ['fork.a', 'handler'], on_error: { goto: 'handler' } }),
    })
    expect(graph).toEqual({
      fork: { edges: [], on_error: { value: { case: 'a' } } },
      handler: { edges: [{ from: 'work', if: 'failure' }], on_error: 'fail' },
      work: {
        edges: [
          { from: 'fork', if: { case: 'a' } },
          { from: 'handler', if: 'success' },
        ],
        on_error: 'goto',
      },
    })
  })

  test('is the same in whatever order the spec names its nodes', () => {
    const nodes = { b: node({ needs: ['a'] }), a: node({}) }
    const other = { a: nodes.a, b: nodes.b }
    expect(JSON.stringify(graphOf(nodes))).toBe(JSON.stringify(graphOf(other)))
  })
})

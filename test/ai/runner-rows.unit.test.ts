import { afterAll, describe, expect, test } from '@jest/globals'
import { makeNodesOnRunner } from '../../activities/runner/nodes.ts'
import type { CallModel, RunApi, Tokens } from '../../activities/runner/work.ts'
import { ExpressionPool } from '../../lib/ai/expression-pool.ts'
import { type NodeResult, variablesJson } from '../../lib/ai/programs.ts'
import { validate } from '../../lib/ai/validate.ts'
import type { Begun, Turn } from '../../lib/runner-protocol.ts'
import { noApi, noTokens } from '../support/ai/runner-work.ts'
import { lookups, specOf } from '../support/ai/specs.ts'
import { inActivity } from '../support/in-activity.ts'

// A runner carries out the nodes of a row.

const pool = new ExpressionPool(1)
afterAll(() => pool.close())

const nodes = {
  a: { kind: 'template', value: '${size(input.text)}' },
  b: { kind: 'template', needs: ['a'], value: '${nodes.a.output + 1}' },
  c: { kind: 'template', needs: ['b'], when: 'nodes.b.output > 3', value: '${nodes.b.output + 1}' },
}
type Results = Record<string, NodeResult>

/** What an attempt gets whose expressions name these nodes. */
function begun(results: Results, names: string[]): Begun {
  const some = names.flatMap((name) => (results[name] ? [[name, results[name]] as const] : []))
  return {
    done: null,
    given: variablesJson('{"text":"abc"}', Object.fromEntries(some)),
    nodes: Object.fromEntries(some.map(([name]) => [name, { status: 'succeeded', case: null }])),
  }
}

let count = 0

/** A model that does not answer. */
const untilAborted: CallModel = (_, signal) =>
  new Promise((_resolve, reject) => {
    const stop = (): void => reject(signal.reason as Error)
    if (signal.aborted) stop()
    else signal.addEventListener('abort', stop)
  })

/** A runner whose API has these values for nodes, and answers each turn with what follows. */
async function runner({
  stopsAfter = '',
  of = nodes,
  makes = '${nodes.b.output}',
  callModel = untilAborted,
  tokens = noTokens,
}: {
  stopsAfter?: string
  of?: Record<string, unknown>
  makes?: unknown
  callModel?: CallModel
  tokens?: Tokens
} = {}) {
  const { valid } = await validate(specOf(of, { output: makes }), lookups())
  if (!valid) throw new Error('the spec is not valid')
  const asked: unknown[] = []
  const results: Results = {}
  const usesOf = (node: string): string[] => valid.plan.nodes[node]?.uses ?? []
  const api: RunApi = {
    ...noApi,
    async beginNode(_: string, node: string, attempt: number) {
      asked.push(['begin', node, attempt])
      return begun(results, usesOf(node))
    },
    async endNode(_: string, node: string, attempt: number, { status }: { status: string }) {
      asked.push(['end', node, attempt, status])
    },
    async turnNode(_: string, node: string, attempt: number, { output, next }: Turn) {
      asked.push(['turn', node, attempt, output, next])
      results[node] = { status: 'succeeded', output }
      if (next === null || node === stopsAfter) return { begun: null }
      if (next === 'output') return { begun: begun(results, valid.plan.output.uses) }
      if ('output' in next) return { begun: null, output: true }
      return { begun: begun(results, usesOf(next.node)) }
    },
    modelGrant: async () => ({ token: 't', provider: 'openai' }),
    async giveOutput(_: string, output: string) {
      asked.push(['output', output])
    },
  }
  const work = { api, callModel, tokens, pool, ...valid, key: `row ${count++}` }
  return { asked, api, activities: makeNodesOnRunner(work) }
}
const inARow = (names: string[], output: boolean, sec = 60) => ({
  row: { nodes: names.map((node) => ({ node, within_sec: sec })), output },
})

describe('a row', () => {
  test('is carried out node by node, with one request between two, and then makes the output', async () => {
    const { asked, activities } = await runner()
    const answer = await inActivity(() =>
      activities.runNodeOnRunner('run', 'a', inARow(['a', 'b', 'c'], true)),
    )
    expect(answer).toEqual({ status: 'succeeded', case: null, passed: 2, output: true })
    expect(asked).toEqual([
      ['begin', 'a', 1],
      ['turn', 'a', 1, '3', { node: 'b' }],
      ['turn', 'b', 1, '4', { node: 'c' }],
      ['turn', 'c', 1, '5', { output: '4' }],
    ])
  })

  const long = 'x'.repeat(40_000)
  test.each<[string, unknown, string]>([
    ['names a node of which the last one knows nothing', '${[nodes.a.output, nodes.c.output]}', '[3,5]'],
    ['is long', [long, long, '${nodes.c.output}'], JSON.stringify([long, long, 5])],
  ])('asks for the values of an output that %s', async (_, output, json) => {
    const { asked, activities } = await runner({ makes: output })
    const answer = await inActivity(() =>
      activities.runNodeOnRunner('run', 'a', inARow(['a', 'b', 'c'], true)),
    )
    expect(answer).toEqual({ status: 'succeeded', case: null, passed: 2, output: true })
    expect(asked.slice(3)).toEqual([
      ['turn', 'c', 1, '5', 'output'],
      ['output', json],
    ])
  })

  test('leaves the output to the run’s workflow if the API does not take it', async () => {
    const { activities } = await runner({ stopsAfter: 'c' })
    const answer = await inActivity(() =>
      activities.runNodeOnRunner('run', 'a', inARow(['a', 'b', 'c'], true)),
    )
    expect(answer).toEqual({ status: 'succeeded', case: null, passed: 2 })
  })

  test('ends where the API begins nothing more', async () => {
    const { asked, activities } = await runner({ stopsAfter: 'a' })
    const answer = await inActivity(() => activities.runNodeOnRunner('run', 'a', inARow(['a', 'b'], true)))
    expect(answer).toEqual({ status: 'succeeded', case: null, passed: 0 })
    expect(asked).toHaveLength(2)
  })

  test('ends with a node that takes too long, which may be attempted again', async () => {
    const ask = { kind: 'llm', model: 'fast', messages: [{ role: 'user', content: '${input.text}' }] }
    const { asked, activities } = await runner({ of: { a: ask, b: { ...nodes.b, value: 1 } } })
    const failing = inActivity(() => activities.runNodeOnRunner('run', 'a', inARow(['a', 'b'], false, 0.01)))
    await expect(failing).rejects.toMatchObject({ code: 'timed_out', permanent: false })
    expect(asked).toEqual([['begin', 'a', 1]])
  })

  test.each<[string, object | undefined]>([
    ['alone', undefined],
    ['in a row', inARow(['a', 'b'], false)],
  ])('ends an attempt that takes longer than the `timeout_sec` of its node, %s', async (_, how) => {
    const messages = [{ role: 'user', content: '${input.text}' }]
    const ask = { kind: 'llm', model: 'fast', messages, timeout_sec: 1 }
    const { asked, activities } = await runner({ of: { a: ask, b: { ...nodes.b, value: 1 } } })
    const failing = inActivity(() => activities.runNodeOnRunner('run', 'a', how))
    await expect(failing).rejects.toMatchObject({ code: 'timed_out', permanent: false })
    expect(asked).toEqual([['begin', 'a', 1]])
  })

  test('of one node counts the attempts before it', async () => {
    const { asked, activities } = await runner()
    await inActivity(() => activities.runNodeOnRunner('run', 'a', { before: 1 }), 2)
    expect(asked).toEqual([
      ['begin', 'a', 3],
      ['turn', 'a', 3, '3', null],
    ])
  })
})

const messages = (text: string) => [{ role: 'user', content: text }]
const answer = (content: string): string => JSON.stringify({ choices: [{ message: { content } }] })

describe('a call of a model in a row', () => {
  const calls = {
    a: { kind: 'llm', model: 'fast', messages: messages('${input.text}') },
    b: { kind: 'llm', model: 'fast', needs: ['a'], messages: messages('${nodes.a.output}') },
  }
  /** A row of two calls. The API waits with its answer to the first turn. */
  async function rowOf({
    begins = true,
    retries = false,
    of = calls,
    isLate = false,
  }: {
    begins?: boolean
    retries?: boolean
    of?: Record<string, unknown>
    isLate?: boolean
  } = {}) {
    const asked: string[] = []
    const said: string[] = []
    const turning = Promise.withResolvers<void>()
    const turned = Promise.withResolvers<void>()
    const aborted = Promise.withResolvers<void>()
    const signals: AbortSignal[] = []
    const callModel: CallModel = async ({ key }, signal, onText) => {
      asked.push(key)
      signals.push(signal)
      const isFirst = asked.filter((one) => one === key).length === 1
      if (isLate && key === 'b/0' && isFirst) {
        signal.addEventListener('abort', () => aborted.resolve())
        return untilAborted({ path: '', body: {}, token: '', key }, signal)
      }
      onText?.(`of ${key}`)
      return { status: 200, said: answer(key) }
    }
    const tokens = { ...noTokens, say: (_: string, { text }: { text: string }) => void said.push(text) }
    const { api, activities } = await runner({ of, callModel, tokens, makes: '${nodes.b.output}' })
    const usual = { ...api }
    api.beginNode = async (...its) => ({
      ...(await usual.beginNode(...its)),
      ...(retries ? { retries } : {}),
    })
    api.turnNode = async (...its) => {
      const answered = await usual.turnNode(...its)
      if (its[1] === 'a') {
        turned.resolve()
        await turning.promise
      }
      return begins ? answered : { begun: null }
    }
    const names = Object.keys(of)
    const inTime = names.map((node) => ({ node, within_sec: isLate && node === 'b' ? 0.1 : 60 }))
    const how = { row: { nodes: inTime, output: true } }
    const ended = inActivity(() => activities.runNodeOnRunner('run', names[0] ?? '', how))
    await turned.promise
    if (isLate) await aborted.promise
    // What was to be evaluated before has been evaluated then.
    await pool.evaluate({ key: 'after', variables: {}, wanted: { '/it': { value: 1 } }, given: '{}' })
    await new Promise(setImmediate)
    return { asked, said, signals, goOn: turning.resolve, ended }
  }

  test('begins while the API records the end of the node before, and says nothing until it has begun', async () => {
    const { asked, said, goOn, ended } = await rowOf()
    expect(asked).toEqual(['a/0', 'b/0'])
    expect(said).toEqual(['of a/0'])
    goOn()
    expect(await ended).toEqual({ status: 'succeeded', case: null, passed: 1, output: true })
    expect(said).toEqual(['of a/0', 'of b/0'])
    expect(asked).toHaveLength(2)
  })

  test('ends if the API does not begin its node', async () => {
    const { signals, said, goOn, ended } = await rowOf({ begins: false })
    goOn()
    expect(await ended).toEqual({ status: 'succeeded', case: null, passed: 0 })
    expect(signals.map(({ aborted }) => aborted)).toEqual([false, true])
    expect(said).toEqual(['of a/0'])
  })

  test('that runs out of time before the API has begun its node is made again', async () => {
    const { asked, said, goOn, ended } = await rowOf({ isLate: true })
    goOn()
    expect(await ended).toMatchObject({ status: 'succeeded', passed: 1, output: true })
    expect(asked).toEqual(['a/0', 'b/0', 'b/0'])
    expect(said).toEqual(['of a/0', 'of b/0'])
  })

  test.each<[string, Parameters<typeof rowOf>[0]]>([
    ['of a retry', { retries: true }],
    [
      'that names a node of which the one before knows nothing',
      {
        of: {
          z: { kind: 'template', value: 1 },
          a: { ...calls.a, needs: ['z'] },
          b: { ...calls.b, messages: messages('${nodes.z.output}') },
        },
      },
    ],
  ])('%s waits for the API', async (_, how) => {
    const { asked, goOn, ended } = await rowOf(how)
    expect(asked).toEqual(['a/0'])
    goOn()
    expect(await ended).toMatchObject({ status: 'succeeded', output: true })
    expect(asked).toEqual(['a/0', 'b/0'])
  })
})

import { setTimeout as delay } from 'node:timers/promises'
import { afterAll, describe, expect, test } from '@jest/globals'
import { makeCaller } from '../../activities/runner/workflow-calls.ts'
import { makeItemWriter } from '../../activities/runner/item-writer.ts'
import { outcomeOf } from '../../activities/runner/kinds.ts'
import type { CallModel, RunnerWork } from '../../activities/runner/work.ts'
import { ExpressionPool } from '../../lib/ai/expression-pool.ts'
import type { NodeSpec } from '../../lib/ai/node-kinds.ts'
import { type NodeResult, variablesJson } from '../../lib/ai/programs.ts'
import { nodesOfItems, stepNamed } from '../../lib/ai/steps.ts'
import { validate } from '../../lib/ai/validate.ts'
import type { Fault, ItemEnd } from '../../lib/runner-maps.ts'
import { type Ended, nodeOfCall } from '../../lib/runner-protocol.ts'
import { never, noApi, noTokens } from '../support/ai/runner-work.ts'
import { lookups, specOf } from '../support/ai/specs.ts'

// What a runner does with the items of a map. The API is a stand-in that keeps their ends.

const pool = new ExpressionPool(1)
afterAll(() => pool.close())

interface Before {
  ended?: number[]
  failed?: ({ item: number } & Fault)[]
  begun?: { item: number; attempt: number }[]
}
interface Options {
  input?: object
  results?: Record<string, NodeResult>
  before?: Before
  callModel?: CallModel
  signal?: AbortSignal
}

let count = 0

async function worker(nodes: Record<string, unknown>, options: Options) {
  const { valid, ...faults } = await validate(specOf(nodes), lookups())
  if (!valid) throw new Error(JSON.stringify(faults))
  const { input = { text: 'hello' }, results = {}, before = {}, callModel = never } = options
  const given = variablesJson(JSON.stringify(input), results)
  const of = (names: string[]) => ({
    given: variablesJson(
      JSON.stringify(input),
      Object.fromEntries(names.flatMap((name) => (results[name] ? [[name, results[name]]] : []))),
    ),
    nodes: Object.fromEntries(names.map((name) => [name, { status: 'succeeded' as const, case: null }])),
  })
  const ends: ItemEnd[] = []
  const begun: string[] = []
  const called: [string, number, string][] = []
  const api: RunnerWork['api'] = {
    ...noApi,
    async callHttp(_, node, attempt, asked) {
      called.push([`${node} ${asked.key}`, attempt, asked.url])
      return { state: 'done', output: '{"status":200,"headers":{},"body":1}', is_error: false }
    },
    modelGrant: async () => ({ token: 'token', provider: 'openai' }),
    async beginNode(_, node, attempt) {
      begun.push(`${node} ${attempt}`)
      return { done: null, given: '{}', nodes: {} }
    },
    async openItems(_, node) {
      const names = nodesOfItems(valid.spec.nodes[node] as Extract<NodeSpec, { kind: 'map' }>)
      return { ...of(names), ended: [], failed: [], begun: [], ...before }
    },
    async endItems(_, __, some) {
      ends.push(...some)
    },
    givenForNode: async () => ({ given, nodes: {} }),
    async callWorkflow(_, node, attempt, asked) {
      called.push([node, attempt, asked])
      return { state: 'done' }
    },
  }
  const work: RunnerWork = { api, callModel, tokens: noTokens, pool, ...valid, key: `map ${count++}` }
  return { work, given, ends, begun, called }
}

async function mapped(
  map: Record<string, unknown>,
  options: Options = {},
  others: Record<string, unknown> = {},
) {
  const its = await worker({ ...others, all: { kind: 'map', ...map } }, options)
  const { signal = new AbortController().signal } = options
  const task = { run: 'run', name: 'all', attempt: 1, signal }
  const end = outcomeOf(its.work, { ...task, begun: { done: null, given: its.given, nodes: {} } })
  const settled: { end: Ended | null; fault: { code?: string; message?: string } | null } = await end.then(
    (value) => ({ end: value, fault: null }),
    (fault: Error) => ({ end: null, fault }),
  )
  return { ...its, ...settled }
}

const outputs = (ends: ItemEnd[]): unknown[] =>
  ends
    .toSorted((one, other) => one.item - other.item)
    .map((end) => (end.status === 'succeeded' ? JSON.parse(end.output) : end.error.code))

const tags = (length: number) => ({ text: 'x', tags: Array.from({ length }, (_, at) => `t${at}`) })

describe('a map of templates', () => {
  test('has the value of each item, with the item and its index', async () => {
    const step = { kind: 'template', value: { it: '${item}', at: '${index + 1}' } }
    const { end, ends } = await mapped({ items: 'input.tags', do: step }, { input: tags(250) })
    expect(end).toEqual({ status: 'gathered', items: 250 })
    expect(outputs(ends)).toEqual(tags(250).tags.map((it, at) => ({ it, at: at + 1 })))
  })

  test('sees the outputs that it names', async () => {
    const one = { kind: 'template', value: { n: 7 } }
    const step = { kind: 'template', value: '${nodes.one.output.n} ${item}' }
    const { ends } = await mapped(
      { needs: ['one'], items: '[1, 2]', do: step },
      { results: { one: { status: 'succeeded', output: '{"n":7}' } } },
      { one },
    )
    expect(outputs(ends)).toEqual(['7 1', '7 2'])
  })

  test('has no items', async () => {
    const { end, ends } = await mapped(
      { items: 'input.tags', do: { kind: 'template', value: '${item}' } },
      { input: tags(0) },
    )
    expect([end, ends]).toEqual([{ status: 'gathered', items: 0 }, []])
  })

  test('goes on with the items that have not ended', async () => {
    const { ends } = await mapped(
      { items: 'input.tags', do: { kind: 'template', value: '${item}' } },
      { input: tags(5), before: { ended: [0, 1, 3] } },
    )
    expect(ends.map(({ item }) => item)).toEqual([2, 4])
  })

  test('is refused more items than it may have, and what is no list', async () => {
    const step = { kind: 'template', value: '${item}' }
    const many = await mapped({ items: 'input.tags', max_items: 3, do: step }, { input: tags(4) })
    expect(many.fault).toMatchObject({ code: 'too_many_items', permanent: true })
    const none = await mapped(
      { needs: ['call'], items: 'nodes.call.output.passages', do: step },
      { results: { call: { status: 'succeeded', output: '{"passages":7}' } } },
      { call: { kind: 'retrieve', collection: 'manuals', query: 'x' } },
    )
    expect(none.fault).toMatchObject({ code: expect.stringMatching('failed') })
  })

  test('fails with its first item without a value, and records that', async () => {
    const step = { kind: 'template', value: '${input.tags[index + 1]}' }
    const { fault, ends } = await mapped({ items: 'input.tags', at_once: 1, do: step }, { input: tags(3) })
    expect(fault).toMatchObject({ code: 'expression_failed', message: expect.stringContaining('Item 2: ') })
    expect(outputs(ends)).toEqual(['t1', 't2', 'expression_failed'])
  })

  test('goes on after an item that has another value', async () => {
    const step = { kind: 'template', value: '${input.tags[index + 1]}', on_error: { value: 'none' } }
    const { end, ends } = await mapped({ items: 'input.tags', do: step }, { input: tags(3) })
    expect(end).toEqual({ status: 'gathered', items: 3 })
    expect(outputs(ends)).toEqual(['t1', 't2', 'expression_failed'])
  })
})

const said = (content: string) => ({
  status: 200,
  said: JSON.stringify({ choices: [{ message: { content }, finish_reason: 'stop' }] }),
})
const textOf = (body: object) => (body as { messages: { content: string }[] }).messages[0]?.content ?? ''

/** Opens when so many wait at it, and stays open. */
function gate(many: number): () => Promise<void> {
  const { promise, resolve } = Promise.withResolvers<void>()
  let waiting = 0
  return () => {
    if (++waiting === many) resolve()
    return promise
  }
}

describe('a map of calls', () => {
  const step = { kind: 'llm', model: 'fast', messages: [{ role: 'user', content: '${item}' }] }
  const retry = { max: 2, backoff_sec: 0.1 }

  test('makes at most `at_once` at once, each with a key of its own', async () => {
    let open = 0
    let most = 0
    const keys: string[] = []
    const three = gate(3)
    const { ends } = await mapped(
      { items: 'input.tags', at_once: 3, do: step },
      {
        input: tags(12),
        async callModel({ body, key }) {
          keys.push(key)
          most = Math.max(most, ++open)
          await three()
          open--
          return said(`re ${textOf(body)}`)
        },
      },
    )
    expect(most).toBe(3)
    expect(new Set(keys).size).toBe(12)
    expect(outputs(ends)).toEqual(tags(12).tags.map((tag) => `re ${tag}`))
    expect(ends.every(({ attempt }) => attempt === 1)).toBe(true)
  })

  test('attempts an item again, and counts the attempts of a runner that was killed', async () => {
    const { ends, begun } = await mapped(
      { items: 'input.tags', do: { ...step, retry, on_error: { value: 'none' } } },
      {
        input: tags(3),
        before: {
          begun: [
            { item: 0, attempt: 1 },
            { item: 1, attempt: 3 },
          ],
        },
        async callModel({ body }) {
          return textOf(body) === 't0' ? { status: 503, said: '' } : said('yes')
        },
      },
    )
    expect(begun.toSorted()).toEqual(['all-0 2', 'all-0 3', 'all-2 1'])
    expect(outputs(ends)).toEqual(['model_unavailable', 'runner_lost', 'yes'])
  })

  test('fails at once by what another attempt cannot mend, and ends the others', async () => {
    let cancelled = 0
    const four = gate(4)
    const { fault } = await mapped(
      { items: 'input.tags', at_once: 4, do: { ...step, retry } },
      {
        input: tags(4),
        async callModel({ body }, signal) {
          await four()
          if (textOf(body) === 't2')
            return { status: 401, said: '{"error":{"code":"no_key","message":"No"}}' }
          await delay(60_000, null, { signal }).catch(() => cancelled++)
          throw new Error('it was ended')
        },
      },
    )
    expect(fault).toMatchObject({ code: 'no_key', message: 'Item 2: No', permanent: true })
    expect(cancelled).toBe(3)
  })

  test('fails an item that takes longer than its time', async () => {
    const { ends } = await mapped(
      {
        items: '["a"]',
        do: { ...step, timeout_sec: 1, retry: { max: 0 }, on_error: { value: 'late' } },
      },
      {
        async callModel(_, signal) {
          await delay(60_000, null, { signal })
          return said('late')
        },
      },
    )
    expect(outputs(ends)).toEqual(['timed_out'])
  })

  test('ends with its signal, whatever it has begun', async () => {
    const ending = new AbortController()
    const { fault, ends } = await mapped(
      { items: 'input.tags', at_once: 2, do: step },
      {
        input: tags(4),
        signal: ending.signal,
        async callModel(_, signal) {
          ending.abort()
          await delay(60_000, null, { signal })
          return said('late')
        },
      },
    )
    expect([(fault as Error | null)?.name, ends]).toEqual(['AbortError', []])
  })

  test('has its requests made under the names of its items', async () => {
    const http = { kind: 'http', method: 'GET', url: 'https://example.com/${item}' }
    const { ends, called } = await mapped(
      { items: 'input.tags', at_once: 1, do: http },
      { input: tags(2), before: { begun: [{ item: 1, attempt: 1 }] } },
    )
    expect(outputs(ends)).toEqual([0, 1].map(() => ({ status: 200, headers: {}, body: 1 })))
    expect(called).toEqual([
      ['all-0 all-0/http', 1, 'https://example.com/t0'],
      ['all-1 all-1/http', 2, 'https://example.com/t1'],
    ])
  })

  test('fails as before if an item has failed in a former attempt', async () => {
    const failed = [{ item: 1, code: 'no_key', message: 'No' }]
    const { fault, begun } = await mapped(
      { items: 'input.tags', do: step },
      { input: tags(3), before: { failed } },
    )
    expect(fault).toMatchObject({ code: 'no_key', message: 'Item 1: No' })
    expect(begun).toEqual([])
  })
})

describe('a map of workflows', () => {
  const step = { kind: 'workflow', workflow: 'shout', input: { text: '${item}!' } }

  test('leaves its items to the workflow of the run, and evaluates the input of each', async () => {
    const { end, work, called } = await mapped({ items: 'input.tags', do: step }, { input: tags(3) })
    expect(end).toEqual({ status: 'waiting', message: null, items: 3 })
    const call = makeCaller(work)
    const { signal } = new AbortController()
    for (const item of [2, 0]) await call({ run: 'run', node: 'all', item, attempt: 2 }, signal)
    expect(called).toEqual([
      ['all-2', 2, '{"text":"t2!"}'],
      ['all-0', 2, '{"text":"t0!"}'],
    ])
  })
})

test('a node asks a person, or waits for a run', async () => {
  const nodes = {
    ask: { kind: 'approve', message: 'May we say ${input.text}?', deadline_sec: 60 },
    call: { kind: 'workflow', workflow: 'shout', input: { text: '${input.text}' } },
  }
  const { work, given, called } = await worker(nodes, {})
  const { signal } = new AbortController()
  const begun = { done: null, given, nodes: {} }
  const outcome = (name: string) => outcomeOf(work, { run: 'run', name, attempt: 1, begun, signal })
  expect(await outcome('ask')).toEqual({ status: 'waiting', message: '"May we say hello?"', items: null })
  expect(await outcome('call')).toEqual({ status: 'waiting', message: null, items: null })
  await makeCaller(work)({ run: 'run', node: 'call', item: null, attempt: 1 }, signal)
  expect(called).toEqual([['call', 1, '{"text":"hello"}']])
})

test('an item of a map has a name that no node has', () => {
  const map = { kind: 'map', items: '[1]', do: { kind: 'template', value: '${nodes.a.output} ${item}' } }
  const nodes = { all: map, one: { kind: 'template', value: 1 } } as unknown as Record<string, NodeSpec>
  expect(stepNamed(nodes, 'all-7')).toMatchObject({ map: 'all', item: 7, step: { kind: 'template' } })
  expect(stepNamed(nodes, 'all')).toMatchObject({ map: null, item: null, step: { kind: 'map' } })
  expect([stepNamed(nodes, 'one-1'), stepNamed(nodes, 'none'), stepNamed(nodes, 'constructor')]).toEqual([
    null,
    null,
    null,
  ])
  expect(nodesOfItems(map as unknown as Extract<NodeSpec, { kind: 'map' }>)).toEqual(['a'])
})

test('a call counts for the node that makes it, also if an item of a map does', () => {
  const calls = ['ask/0', 'ask/12', 'all-7/0', 'all-1000/0', 'Ask/0', 'ask', '-1/0', `${'a'.repeat(64)}/0`]
  expect(calls.map(nodeOfCall)).toEqual(['ask', 'ask', 'all', null, null, null, null, null])
})

const endWith = (item: number, bytes = 1): ItemEnd => ({
  item,
  attempt: null,
  status: 'succeeded',
  output: 'x'.repeat(bytes),
})

describe('the writer of items', () => {
  test('sends what has come meanwhile in one request, within its bounds', async () => {
    const sent: number[][] = []
    const writer = makeItemWriter(async (ends) => {
      sent.push(ends.map(({ item }) => item))
      await delay(1)
    })
    for (let item = 0; item < 150; item++) void writer.write(endWith(item))
    await writer.flush()
    expect(sent.map(({ length }) => length)).toEqual([1, 100, 49])
    expect(sent.flat()).toEqual(Array.from({ length: 150 }, (_, at) => at))
    sent.length = 0
    for (let item = 0; item < 4; item++) void writer.write(endWith(item, 3 * 1024 ** 2))
    await writer.flush()
    expect(sent).toEqual([[0], [1], [2], [3]])
  })

  test('says that something was not written, and writes no more', async () => {
    let sent = 0
    const writer = makeItemWriter(async () => {
      sent++
      throw new Error('no')
    })
    await expect(writer.write(endWith(0))).rejects.toThrow('no')
    await expect(writer.write(endWith(1))).rejects.toThrow('no')
    await expect(writer.flush()).rejects.toThrow('no')
    expect(sent).toBe(1)
  })
})

import { spawnSync } from 'node:child_process'
import { existsSync, readFileSync } from 'node:fs'
import { afterAll, describe, expect, test } from '@jest/globals'
import { ExpressionPool } from '../../lib/ai/expression-pool.ts'
import type { Evaluation } from '../../lib/ai/expression-process.ts'

import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'

// Expressions in processes of their own: how hostile ones end, and what their callers get.

const pool = new ExpressionPool(2)
afterAll(() => pool.close())

const types: Evaluation['variables'] = {
  input: { object: { text: 'string', list: { list: 'number' }, k: 'integer' }, required: [] },
}
let count = 0
/** What was wanted, by name. */
async function evaluate(
  wanted: Evaluation['wanted'],
  input: unknown = {},
  variables = types,
): Promise<unknown> {
  const key = `${count++}`
  return JSON.parse(await pool.evaluate({ key, variables, wanted, given: JSON.stringify({ input }) }))
}
const valueOf = async (expression: string, input?: unknown): Promise<unknown> =>
  ((await evaluate({ '/it': { expression } }, input)) as { '/it': unknown })['/it']

const hundred = `[${Array.from({ length: 100 }, (_, at) => at).join()}]`
/** A hundred million rounds. */
const loops = `${hundred}.all(a, ${hundred}.all(b, ${hundred}.all(c, ${hundred}.all(d, a + b + c + d >= 0))))`
/** A list of lists of lists: 4^11 texts, and 11 lists in memory. */
const lists = (levels: number): string =>
  levels === 0 ? 'y0' : `cel.bind(y0, [y0, y0, y0, y0], ${lists(levels - 1)})`

describe('the expressions of a node', () => {
  test('have values by name; a text that is one expression keeps its type', async () => {
    const value = {
      greeting: 'Hello ${input.text}: ${input.k + 1}, ${input.list}, $${input.text}',
      number: '${input.k + 1}',
      list: ['${input.list}', 1, null, true],
      '${input.text}': {},
    }
    const result = await evaluate(
      { '/value': { value }, '/when': { expression: 'input.k > 2' }, '/url': { text: '${input.k}' } },
      { text: 'you', k: 3, list: [1.5] },
    )
    expect(result).toEqual({
      '/value': {
        greeting: 'Hello you: 4, [1.5], ${input.text}',
        number: 4,
        list: [[1.5], 1, null, true],
        '${input.text}': {},
      },
      '/when': true,
      '/url': '3',
    })
  })

  test('take what looks like an expression in a value as the text that it is', async () => {
    const hostile = '${input.secret} $${x} ${"${input.secret}"} {{7*7}} #{secret} <%= secret %>'
    const wanted = { '/whole': { value: '${input.text}' }, '/part': { text: 'It says: ${input.text}' } }
    expect(await evaluate(wanted, { text: hostile, secret: 'planted' })).toEqual({
      '/whole': hostile,
      '/part': `It says: ${hostile}`,
    })
  })

  test('name the part that failed', async () => {
    const wanted = { '/value': { value: { a: ['', { 'b/c': '${input.text}' }] } } }
    await expect(evaluate(wanted)).rejects.toMatchObject({
      code: 'failed',
      pointer: '/value/a/1/b~1c',
      message: 'No such key: text (at character 7)',
    })
  })

  test.each([
    ['loops in loops', loops],
    ['a text that is split and joined', 'input.text.split("").map(c, c + c).filter(c, c != "").size() > 0'],
    ['a list of each with each', 'input.list.map(a, input.list.map(b, [a, b, a * b]))'],
  ])('are ended if they take too long: %s', async (_, expression) => {
    const input = { text: 'x'.repeat(7_000_000), list: Array.from({ length: 3_000 }, () => 1.5) }
    await expect(valueOf(expression, input)).rejects.toMatchObject({ name: 'NoValue', code: 'took_too_long' })
    expect(await valueOf('input.k + 1', { k: 1 })).toBe(2)
  })

  test('take a regular expression that takes JavaScript seconds', async () => {
    const text = `${'a'.repeat(29)}!`
    expect(await valueOf('re(input.text, "(a+)+$")', { text })).toBe(false)
    expect(await valueOf('re(input.text, "(a|aa)+$")', { text: text.repeat(1_000) })).toBe(false)
    expect(await valueOf('re(input.text, "(x+x+)+y")', { text: 'x'.repeat(100_000) })).toBe(false)
  })

  test('have no endless value, though lists within lists take little memory', async () => {
    const endless = `cel.bind(y0, "aa", ${lists(11)})`
    await expect(valueOf(endless)).rejects.toMatchObject({
      message: 'The value is larger than a node’s output',
    })
    const text = evaluate({ '/it': { value: `it is \${${endless}}` } })
    await expect(text).rejects.toMatchObject({ name: 'NoValue' })
  })

  test('pass on what JSON can have, whatever its names', async () => {
    const any = { input: 'any' } as const
    const odd = JSON.parse(
      '{"constructor": {"constructor": 1}, "__proto__": {"a": 1}, "toString": null, "": [{}]}',
    )
    expect(await evaluate({ '/it': { expression: 'input' } }, odd, any)).toEqual({ '/it': odd })
    expect(await evaluate({ '/it': { value: ['${input.constructor}'] } }, odd, any)).toEqual({
      '/it': [{ constructor: 1 }],
    })
    expect({}).not.toHaveProperty('a')
  })

  test('pass on 3 MiB as they are, and refuse 17 to read and 9 to write', async () => {
    const text = 'ü'.repeat(1.5 * 1024 * 1024)
    expect(await valueOf('input.text', { text })).toBe(text)
    expect(await evaluate({ '/it': { value: '${input.text}!' } }, { text })).toEqual({ '/it': `${text}!` })
    const tooLarge = { name: 'NoValue', code: 'too_large' }
    await expect(valueOf('1', { text: 'x'.repeat(17 * 1024 * 1024) })).rejects.toMatchObject(tooLarge)
    await expect(valueOf('input.text', { text: 'x'.repeat(9 * 1024 * 1024) })).rejects.toMatchObject(tooLarge)
    const thrice = evaluate(
      { '/it': { value: '${input.text}${input.text}${input.text}' } },
      { text: text.repeat(2) },
    )
    await expect(thrice).rejects.toMatchObject({ ...tooLarge, pointer: '/it' })
  })

  test('are ended if their values take too much memory', async () => {
    const objects = `[${Array.from({ length: 5_000_000 }, () => '{}').join()}]`
    const job = {
      key: 'objects',
      variables: { input: 'any' as const },
      wanted: { '/it': { expression: '1' } },
    }
    // Collecting garbage may take all its time before the memory is full.
    const ended = { name: 'NoValue', message: expect.stringMatching(/took (too much memory|more than)/) }
    await expect(pool.evaluate({ ...job, given: `{"input":${objects}}` })).rejects.toMatchObject(ended)
    expect(await pool.evaluate({ ...job, given: '{"input":[]}' })).toBe('{"/it":1}')
    const text = 'x'.repeat(8 * 1024 * 1024 - 100)
    const doubled = (times: number): string =>
      times === 0 ? 't.contains("y")' : `cel.bind(t, t + t, ${doubled(times - 1)})`
    await expect(valueOf(`cel.bind(t, input.text, ${doubled(6)})`, { text })).rejects.toMatchObject({
      name: 'NoValue',
    })
    const many = `[${Array.from({ length: 60 }, () => 'input.text').join()}]`
    await expect(valueOf(`${many}.join("")`, { text })).rejects.toMatchObject({ name: 'NoValue' })
    await expect(valueOf(many, { text })).rejects.toMatchObject({ name: 'NoValue' })
    expect(await valueOf('1')).toBe(1)
  })

  test('do not meet those of others: 200 at once, each with its own values', async () => {
    const all = Array.from({ length: 200 }, (_, k) => valueOf('input.k * 2', { k }))
    expect(await Promise.all(all)).toEqual(all.map((_, k) => k * 2))
  })

  test('know nothing of the program', async () => {
    for (const name of ['process', 'globalThis', 'require', 'this', 'Object', 'constructor']) {
      await expect(valueOf(name)).rejects.toMatchObject({
        message: expect.stringContaining(`Unknown variable: ${name}`),
      })
    }
  })
})

const check = (schema: Record<string, unknown>, value: unknown) =>
  pool.check({ key: `${count++}`, schema, given: JSON.stringify(value) })

describe('a value', () => {
  test('is held to a JSON Schema, with patterns of RE2', async () => {
    const schema = {
      $schema: 'https://json-schema.org/draft/2020-12/schema',
      type: 'object',
      properties: { name: { type: 'string', pattern: '^(a+)+$' }, list: { items: { $ref: '#/$defs/item' } } },
      required: ['name'],
      $defs: { item: { type: 'integer' } },
    }
    expect(await check(schema, { name: 'aaa', list: [1] })).toBeNull()
    expect(await check(schema, {})).toEqual({ pointer: '', message: "must have required property 'name'" })
    expect(await check(schema, { name: 'a', list: [1, 'x'] })).toEqual({
      pointer: '/list/1',
      message: 'must be integer',
    })
    expect(await check(schema, { name: `${'a'.repeat(40)}!` })).toMatchObject({ pointer: '/name' })
  })

  test('is ended if its schema takes too long', async () => {
    // Each definition asks the next one twice, and the last one refuses.
    const definitions = Array.from({ length: 40 }, (_, at) => [
      `d${at}`,
      { anyOf: [{ $ref: `#/$defs/d${at + 1}` }, { $ref: `#/$defs/d${at + 1}` }] },
    ])
    const schema = {
      $ref: '#/$defs/d0',
      $defs: Object.fromEntries([...definitions, ['d40', { type: 'string' }]]),
    }
    await expect(check(schema, 1)).rejects.toMatchObject({ name: 'NoValue', code: 'took_too_long' })
    expect(await check({ type: 'integer' }, 1)).toBeNull()
  })
})

test('A closed pool refuses what waits, and what comes', async () => {
  const other = new ExpressionPool(1)
  const job = { key: 'a', variables: {}, wanted: { '/it': { expression: '1' } }, given: '{}' }
  const waiting = Promise.allSettled([other.evaluate(job), other.evaluate(job)])
  await other.close()
  expect((await waiting).map(({ status }) => status)).toEqual(['rejected', 'rejected'])
  await expect(other.evaluate(job)).rejects.toThrow('closed')
})

/** Ids of the processes that this one has started. */
const children = () => readFileSync(`/proc/self/task/${process.pid}/children`, 'utf8').split(' ')

test('A process that has nothing to do ends, and the next evaluation starts another', async () => {
  const before = children()
  const other = new ExpressionPool(1, 100)
  const job = { key: 'a', variables: {}, wanted: { '/it': { expression: '1' } }, given: '{}' }
  expect(await other.evaluate(job)).toBe('{"/it":1}')
  await eventually(() => children().every((child) => before.includes(child)))
  expect(await other.evaluate(job)).toBe('{"/it":1}')
  await other.close()
})

// It ends by the clock, after half a minute.
testDrawn(
  'A process ends by itself when its program is killed in the midst of an endless expression',
  async () => {
    const module = JSON.stringify(new URL('../../lib/ai/expression-pool.ts', import.meta.url).href)
    const job = { key: 'a', variables: {}, wanted: { '/it': { expression: loops } }, given: '{}' }
    // The program does not look at the time of its processes: it waits until the expression runs, and kills itself.
    const program = `
    const { ExpressionPool } = await import(${module})
    const pool = new ExpressionPool(1)
    await pool.evaluate({ ...${JSON.stringify(job)}, wanted: { '/it': { expression: '1' } }, key: 'b' })
    void pool.evaluate(${JSON.stringify(job)}).catch(() => {})
    const { readFileSync, writeSync } = await import('node:fs')
    writeSync(1, readFileSync('/proc/' + process.pid + '/task/' + process.pid + '/children'))
    Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 1_000)
    process.kill(process.pid, 'SIGKILL')`
    const { stdout, signal } = spawnSync(process.execPath, ['--input-type=module', '--eval', program], {
      encoding: 'utf8',
    })
    expect(signal).toBe('SIGKILL')
    const pid = Number(stdout)
    expect(pid).toBeGreaterThan(1)
    await eventually(() => !existsSync(`/proc/${pid}`))
  },
)

import { describe, expect, test } from '@jest/globals'
import { nodesIn, Scope } from '../../lib/ai/cel.ts'
import { newRoom, readJson, toJson } from '../../lib/ai/cel-values.ts'
import type { Type } from '../../lib/ai/types.ts'

// Expressions over JSON: their types, their values, and what is refused.

const input: Type = {
  object: {
    whole: 'integer',
    part: 'number',
    text: 'string',
    when: 'string',
    any: 'any',
    list: { list: 'integer' },
    map: { map: 'integer' },
    rows: { list: { object: { id: 'integer', name: 'string' }, required: ['id'] } },
    'odd name': 'string',
    gone: 'string',
  },
  required: [],
}
const given = {
  input: {
    whole: 3,
    part: 1.5,
    text: 'grüße',
    when: '2026-11-26T00:00:00Z',
    any: { n: 4, deep: [{ x: null }], constructor: 'mine' },
    list: [1, 2, 3],
    map: { a: 1 },
    rows: [{ id: 1, name: 'one' }, { id: 2 }],
    'odd name': 'odd',
  },
  nodes: { first: { status: 'succeeded', output: 7 }, second: { status: 'skipped' } },
}
const json = readJson(JSON.stringify(given)) as Record<string, unknown>
const node = (output: Type): Type => ({ object: { status: 'string', output }, required: ['status'] })
const nodes: Type = { object: { first: node('integer'), second: node('integer') }, required: [] }

const scope = new Scope({ input, nodes })
const valueOf = (expression: string): unknown =>
  toJson(scope.evaluate(expression, scope.values(json)), newRoom())

describe('an expression', () => {
  test.each<[expression: string, type: Type, value: unknown]>([
    ['input.whole + 1', 'integer', 4],
    ['input.whole / 2', 'integer', 1],
    ['input.whole + 1.5', 'number', 4.5],
    ['input.part * 2', 'number', 3],
    ['2 - input.part', 'number', 0.5],
    ['input.whole / 2.0', 'number', 1.5],
    ['7.5 % 2', 'number', 1.5],
    ['input.whole == 3.0', 'boolean', true],
    ['3.5 != input.whole', 'boolean', true],
    ['input.whole < 3.5 && input.part >= 1', 'boolean', true],
    ['input.any.n + 1', 'any', 5],
    ['input.any.n == 4', 'boolean', true],
    ['input.any.n % 3', 'any', 1],
    ['input.list[input.any.n - 2]', 'integer', 3],
    ['input.any.deep[0].x == null', 'boolean', true],
    ['input.any.constructor', 'any', 'mine'],
    ['input["odd name"]', 'string', 'odd'],
    ['has(input.gone) ? input.gone : "none"', 'string', 'none'],
    ['has(nodes.second.output) ? nodes.second.output : nodes.first.output', 'integer', 7],
    ['nodes["first"].status', 'string', 'succeeded'],
    ['input.list.map(n, n * 2)', { list: 'integer' }, [2, 4, 6]],
    ['input.list.filter(n, n > 1).size()', 'integer', 2],
    [
      'input.rows[0]',
      { object: { id: 'integer', name: 'string' }, required: ['id'] },
      { id: 1, name: 'one' },
    ],
    ['input.rows.map(r, r.id)', { list: 'integer' }, [1, 2]],
    ['input.rows.filter(r, has(r.name)).map(r, r.name)', { list: 'string' }, ['one']],
    ['input.map["a"] + 1', 'integer', 2],
    ['"a" in input.map', 'boolean', true],
    ['{"a": 1, "b": "two", "c": [1, "x"]}', { map: 'any' }, { a: 1, b: 'two', c: [1, 'x'] }],
    ['input.map', { map: 'integer' }, { a: 1 }],
    ['dyn(input.rows[0]).map(k, k)', { list: 'any' }, ['id', 'name']],
    ['re(input.text, "^gr.+e$")', 'boolean', true],
    ['re(input.any.constructor, "^m")', 'boolean', true],
    ['cel.bind(n, input.whole, n * n)', 'integer', 9],
    ['timestamp(input.when)', 'string', '2026-11-26T00:00:00.000Z'],
    ['timestamp(input.when).getFullYear() + 1', 'integer', 2027],
    ['input.text.size()', 'integer', 5],
    ['[[1, 2], [3]]', { list: { list: 'integer' } }, [[1, 2], [3]]],
  ])('%s is %j: %j', (expression, type, value) => {
    expect(scope.check(expression)).toEqual(type)
    expect(valueOf(expression)).toEqual(value)
  })

  test.each([
    ['input.gone', 'No such key: gone (at character 7)'],
    ['nodes.second.output + 1', 'No such key: output (at character 14)'],
    ['input.list[9]', /out of bounds/],
    ['input.whole / 0', 'division by zero (at character 1)'],
    ['int(input.text)', /cannot convert/],
    ['9223372036854775807 + input.whole', /integer overflow/],
    ['re(input.text, input.text + "(")', /regular expression is invalid/],
    ['input.any.n && true', /requires bool/],
    ['timestamp(input.when).getDate("Mars")', /Invalid time zone/],
  ])('%s fails: %s', (expression, message) => {
    expect(() => valueOf(expression)).toThrow(message)
  })

  test.each(['1.0 / 0.0', '9007199254740993', '1u', 'type(1)'])('%s has no JSON', (expression) => {
    expect(() => valueOf(expression)).toThrow(expect.objectContaining({ name: 'NoJson' }))
  })

  test('says which value is not of its type', () => {
    const values = scope.values({ input: { whole: 'three', list: [1.5] }, nodes: {} })
    expect(() => scope.evaluate('input.whole + 1', values)).toThrow(
      "'whole' is not of type 'int', got 'string'",
    )
    expect(() => scope.evaluate('input.list[0]', values)).toThrow("'0' is not of type 'int', got 'double'")
  })

  test('does not see what its values inherit', () => {
    const open = new Scope({ input: 'any' })
    for (const name of ['constructor', '__proto__', 'toString', 'hasOwnProperty', 'valueOf']) {
      const values = open.values({ input: { a: 1 } })
      expect(() => open.evaluate(`input["${name}"]`, values)).toThrow('No such key')
      expect(open.evaluate(`has(input.${name})`, values)).toBe(false)
    }
  })

  test('leaves the values of others alone', () => {
    const values = { input: { list: [1, 2] }, nodes: {} }
    const before = structuredClone(values)
    scope.evaluate('input.list.map(n, n + 1) + input.list', scope.values(values))
    expect(values).toEqual(before)
  })

  test('names its nodes', () => {
    const expression = 'nodes.a.output + [1].map(x, nodes["b"].output + x)[0] + (has(nodes.c.output) ? 1 : 2)'
    expect([...nodesIn(expression)].toSorted()).toEqual(['a', 'b', 'c'])
  })

  test.each([
    ['nodes', /followed by the name/],
    ['[1].map(nodes, nodes)', /followed by the name/],
    ['nodes["a" + "b"]', /followed by the name/],
    ['"a".matches("(a+)+$")', /re\(text, pattern\)/],
    ['cel.bind(x, "a", x.matches(x))', /re\(text, pattern\)/],
    ['["a"].exists(x, x.matches("a"))', /re\(text, pattern\)/],
    ['{"a": [true ? dyn("a").matches("a") : false]}', /re\(text, pattern\)/],
    ['has(input.a) && "a".matches("a")', /re\(text, pattern\)/],
    ['re("a", "(?=a)")', /regular expression is invalid/],
    [`re("a", "${'a'.repeat(1_001)}")`, /more than 1000 characters/],
    ['b"a".json()', /has bytes/],
    ['bytes("a").base64()', /has bytes/],
    ['1 + ', /Unexpected token/],
    ['a b', /Unexpected character/],
    ['while', /Reserved identifier/],
    ['x'.repeat(4_097), /more than 4096 characters/],
    ['('.repeat(2_000), /maxDepth/],
    ['!'.repeat(4_000) + 'true', /maxAstNodes|too deep/],
    [`1${'+1'.repeat(2_000)}`, /maxAstNodes/],
    [`[${'1,'.repeat(600)}1]`, /maxListElements/],
    ['\u0000', /Unexpected character/],
  ])('is refused, with the reason: case %#', (expression, message) => {
    expect(() => nodesIn(expression)).toThrow(message)
    expect(() => scope.check(expression)).toThrow(message)
  })
})

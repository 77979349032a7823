import { describe, expect, test } from '@jest/globals'
import * as fc from 'fast-check'
import { Assertion, holds } from '../../lib/ai/assertions.ts'
import { canonicalJson } from '../../lib/ai/canonical.ts'
import { Dice } from '../support/random.ts'
import { seed } from '../support/sampled.ts'

const equals = (value: unknown, output: unknown): boolean =>
  holds({ kind: 'equals', value: value ?? null }, output)
const contains = (text: string, output: unknown): boolean => holds({ kind: 'contains', text }, output)

/** The same value with its fields in another order. */
function shuffled(value: unknown, dice: Dice): unknown {
  if (Array.isArray(value)) return value.map((one) => shuffled(one, dice))
  if (typeof value !== 'object' || value === null) return value
  return Object.fromEntries(
    dice.shuffled(Object.entries(value).map(([name, one]) => [name, shuffled(one, dice)])),
  )
}

/** JSON with as many levels as a model likes to write. */
const deep = (levels: number): unknown => JSON.parse('['.repeat(levels) + ']'.repeat(levels))

describe('equals', () => {
  test('takes the same JSON, in whatever order its fields are', () => {
    fc.assert(
      fc.property(fc.jsonValue(), fc.integer(), (value, order) => {
        const other = shuffled(value, new Dice(order))
        expect(equals(value, other)).toBe(true)
        if (typeof value !== 'string') expect(equals(value, JSON.stringify(other, null, 2))).toBe(true)
      }),
      { seed, numRuns: 500 },
    )
  })

  test('takes no other JSON', () => {
    const small = fc.jsonValue({ maxDepth: 2, stringUnit: fc.constantFrom('a', '1') })
    fc.assert(
      fc.property(small, small, (one, other) => {
        fc.pre(typeof other !== 'string')
        expect(equals(one, other)).toBe(canonicalJson(one) === canonicalJson(other))
      }),
      { seed, numRuns: 1_000 },
    )
  })

  test.each<[string, unknown, unknown, boolean]>([
    ['numbers by their value', { a: 1 }, '{"a": 1.0e0}', true],
    ['zeros of either sign', 0, -0, true],
    ['null, which is no missing field', { a: null }, {}, false],
    ['a field more', { a: 1 }, { a: 1, b: 2 }, false],
    ['lists in their order', [1, 2], [2, 1], false],
    ['a list, which is no object', [], {}, false],
    ['a text, which is no number', '1', 1, false],
    ['a number that is written as text', 1, '1', true],
    ['a text, as it stands', '{"a":1}', '{ "a": 1 }', false],
    ['a text with quotes', 'yes', '"yes"', false],
    ['what is no JSON', { a: 1 }, '{"a":1', false],
    ['a field named __proto__', JSON.parse('{"__proto__":1}'), {}, false],
    ['the same field named __proto__', JSON.parse('{"__proto__":1}'), '{"__proto__":1}', true],
    ['half a character', ['\ud800'], ['\ud800'], true],
    ['a field that objects inherit', { toString: 1 }, { valueOf: 1 }, false],
  ])('compares %s', (_, value, output, isEqual) => {
    expect(equals(value, output)).toBe(isEqual)
  })

  test('bears an output with 100,000 levels', () => {
    expect(equals([[[1]]], deep(100_000))).toBe(false)
    expect(equals([[[1]]], '['.repeat(100_000))).toBe(false)
  })
})

describe('contains', () => {
  test.each<[string, string, unknown, boolean]>([
    ['a part of a text', 'ell', 'Hello', true],
    ['nothing in other letters', 'hello', 'Hello', false],
    ['a text within, with quotes', '"yes"', { reply: ['He said "yes".'] }, true],
    ['a number', '12.5', { total: [12.5] }, true],
    ['a truth value', 'true', [{ sure: true }], true],
    ['no name of a field', 'total', { total: 1 }, false],
    ['nothing across two texts', 'ab', ['a', 'b'], false],
    ['no object', 'object', { a: {} }, false],
  ])('finds %s', (_, text, output, isThere) => {
    expect(contains(text, output)).toBe(isThere)
  })

  test('bears an output with 100,000 levels', () => {
    expect(contains('x', deep(100_000))).toBe(false)
  })
})

describe('an assertion', () => {
  test.each<[string, unknown]>([
    ['is of no known kind', { kind: 'matches', pattern: 'a' }],
    ['has a field of another kind', { kind: 'contains', text: 'a', value: 1 }],
    ['contains nothing', { kind: 'contains', text: '' }],
    ['equals nothing', { kind: 'equals' }],
    ['has no judge', { kind: 'judge', rubric: 'Is it polite?' }],
    ['has a judge without a connector', { kind: 'judge', rubric: 'Is it polite?', model: { model: 'm' } }],
    ['has no rubric', { kind: 'judge', model: 'fast' }],
  ])('that %s is refused', (_, value) => {
    expect(Assertion.safeParse(value).success).toBe(false)
  })

  test.each<[string, unknown]>([
    ['null', { kind: 'equals', value: null }],
    ['a name in `models`', { kind: 'judge', rubric: 'Is it polite?', model: 'fast' }],
    ['a model', { kind: 'judge', rubric: 'Is it polite?', model: { connector: 'openai', model: 'gpt-4o' } }],
  ])('may name %s', (_, value) => {
    expect(Assertion.parse(value)).toEqual(value)
  })
})

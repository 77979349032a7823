import { describe, expect, test } from '@jest/globals'
import { z } from 'zod'
import { Name, PlainText, Tags } from '../../api/fields.ts'
import { parse } from '../../api/problems.ts'
import { plan } from '../../api/compute/observation/metrics.ts'
import type { InvalidInput } from '../../lib/problem.ts'

// What is said of a value that is refused, and where.

const mistakes = (act: () => unknown): unknown => {
  try {
    act()
  } catch (error) {
    return (error as InvalidInput).extensions['errors']
  }
  throw new Error('nothing was refused')
}
const said = (schema: z.ZodType, input: unknown, status: 400 | 422 = 422, fixed?: string[]) =>
  mistakes(() => parse(schema, input, status, fixed))

test.each<[string, z.ZodType, unknown, string]>([
  ['what is missing', z.string(), undefined, 'is required'],
  ['a number for a string', z.string(), 5, 'must be a string'],
  ['a text for a whole number', z.int(), 'x', 'must be a number'],
  ['a fraction for a whole number', z.int(), 1.5, 'must be a whole number'],
  ['what is too small', z.number().min(3), 1, 'must be at least 3'],
  ['what is too large', z.number().max(3), 4, 'must be at most 3'],
  ['an empty text', z.string().min(1), '', 'must not be empty'],
  ['a long text', z.string().max(2), 'abc', 'must have at most 2 characters'],
  ['too many items', z.array(z.int()).max(1), [1, 2], 'must have at most 1 items'],
  ['no value of some', z.enum(['asc', 'desc']), 'up', 'must be one of asc, desc'],
  ['no UUID', z.uuid(), 'x', 'must be a UUID'],
  ['no time', z.iso.datetime(), 'noon', 'must be a time such as 2026-01-31T12:00:00Z'],
  ['no multiple', z.number().multipleOf(10), 15, 'must be a multiple of 10'],
  [
    'none of several forms',
    z.union([z.string(), z.int()]),
    true,
    'has none of the forms that are allowed here',
  ],
  ['words of a schema’s own', Name, 'A', 'must be 1 to 63 of a-z, 0-9 and -, without a - at either end'],
])('%s', (_, schema, input, message) => {
  expect(said(z.strictObject({ field: schema }), { field: input })).toEqual([{ pointer: '/field', message }])
})

test('a query parameter that is given twice is told so', () => {
  const query = z.strictObject({ limit: z.coerce.number().int(), order: z.enum(['asc']).optional() })
  expect(said(query, { limit: ['1', '2'] }, 400)).toEqual([{ pointer: '/limit', message: 'is given twice' }])
  expect(said(query, { limit: '1', order: ['asc', 'asc', 'asc'] }, 400)).toEqual([
    { pointer: '/order', message: 'is given 3 times' },
  ])
})

test('a field of the resource that a change does not take cannot be changed; another is unknown', () => {
  expect(said(z.strictObject({}), { cidr: '10.0.0.0/8', colour: 'red' }, 422, ['cidr'])).toEqual([
    { pointer: '/cidr', message: 'cannot be changed' },
    { pointer: '/colour', message: 'is not a known field' },
  ])
})

describe('names and tags', () => {
  test.each([
    ['a control character', 'a\u0007b'],
    ['a line feed', 'a\nb'],
    ['a turn of direction', 'invoice\u202Efdp.exe'],
    ['an isolate', '\u2066admin'],
    ['a mark of direction', 'admin\u200F'],
  ])('with %s are refused', (_, text) => {
    const message = 'must have no control or bidirectional characters'
    expect(said(z.strictObject({ name: PlainText }), { name: text })).toEqual([{ pointer: '/name', message }])
    expect(said(z.strictObject({ tags: Tags }), { tags: { a: text } })).toEqual([
      { pointer: '/tags/a', message },
    ])
  })

  test('may be of any language', () => {
    for (const name of ['Łódź', '東京 2', 'מיכל', 'José-María', '🙂'])
      expect(parse(PlainText, name, 422)).toBe(name)
  })

  test.each([
    ['in a tag', '{"tags": {"__proto__": "x", "a": "b"}}', '/tags/__proto__'],
    ['in a list', '{"tags": {}, "list": [{"__proto__": "x"}]}', '/list/0/__proto__'],
  ])('__proto__ %s is refused, and not left out', (_, json, pointer) => {
    const schema = z.strictObject({
      tags: Tags,
      list: z.array(z.record(z.string(), z.string())).optional(),
    })
    expect(said(schema, JSON.parse(json))).toEqual([
      { pointer, message: 'is not a name that is allowed here' },
    ])
  })

  test('data that a field takes as they are may have it', () => {
    const spec = JSON.parse('{"spec": {"__proto__": 1}}') as unknown
    expect(
      Object.hasOwn(parse(z.strictObject({ spec: z.unknown() }), spec, 422).spec as object, '__proto__'),
    ).toBe(true)
  })
})

describe('a range of metrics points to what was sent', () => {
  const now = Date.parse('2026-06-01T00:00:00Z')
  const at = (range: Parameters<typeof plan>[0]) => mistakes(() => plan(range, now))
  test.each<[string, Parameters<typeof plan>[0], string, string]>([
    [
      'from after to',
      { from: '2026-05-02T00:00:00Z', to: '2026-05-01T00:00:00Z' },
      '/from',
      'must be before to',
    ],
    ['from in the future, without to', { from: '2026-07-01T00:00:00Z' }, '/from', 'must be in the past'],
    [
      'a range too long for any step',
      { from: '2016-01-01T00:00:00Z' },
      '/from',
      'must be at most 1500 days before now',
    ],
    [
      'a step too short',
      { from: '2026-05-31T00:00:00Z', step_sec: 10 },
      '/step_sec',
      'must give at most 1500 points',
    ],
  ])('%s', (_, range, pointer, message) => {
    expect(at(range)).toEqual([{ pointer, message }])
  })
})

import { describe, expect, test } from '@jest/globals'
import {
  isLargerThan,
  mismatchOf,
  objectOf,
  schemaOfType,
  type Type,
  typeOfSchema,
  typeOfValue,
  unified,
} from '../../lib/ai/types.ts'

// Types of values, and what they keep of JSON Schema.

const person: Type = { object: { name: 'string', age: 'integer' }, required: ['name'] }
const personSchema = {
  type: 'object',
  properties: { name: { type: 'string' }, age: { type: 'integer' } },
  required: ['name'],
}

/** Each definition names the next one twice. */
const twice = (at: number) => ({
  type: 'object',
  properties: { a: { $ref: `#/$defs/d${at + 1}` }, b: { $ref: `#/$defs/d${at + 1}` } },
})

describe('a JSON Schema', () => {
  test.each<[schema: unknown, type: Type]>([
    [personSchema, person],
    [{ ...personSchema, additionalProperties: false }, person],
    [{ ...personSchema, additionalProperties: true }, 'any'],
    [{ ...personSchema, required: ['name', 'other'] }, person],
    [{ type: 'array', items: personSchema }, { list: person }],
    [{ type: 'array' }, { list: 'any' }],
    [{ type: 'array', prefixItems: [{ type: 'string' }] }, { list: 'any' }],
    [{ type: 'object' }, { map: 'any' }],
    [{ type: 'object', additionalProperties: { type: 'number' } }, { map: 'number' }],
    [{ type: ['string', 'null'] }, 'any'],
    [{ enum: ['a', 'b'] }, 'string'],
    [{ enum: ['a', 1] }, 'any'],
    [{ const: true }, 'boolean'],
    [{ anyOf: [{ type: 'string' }] }, 'any'],
    [{ type: 'string', not: {} }, 'any'],
    [{ $ref: '#/$defs/p', $defs: { p: personSchema } }, person],
    [
      { type: 'array', items: { $ref: '#/definitions/n' }, definitions: { n: { type: 'null' } } },
      { list: 'null' },
    ],
    [{ $ref: '#/$defs/gone' }, 'any'],
    [{ $ref: '#/$defs/a', $defs: { a: { $ref: '#/$defs/a' } } }, 'any'],
    [{ $ref: '#/$defs/t', $defs: { t: { type: 'array', items: { $ref: '#/$defs/t' } } } }, { list: 'any' }],
    [true, 'any'],
    [null, 'any'],
    [{}, 'any'],
  ])('%j has a type', (schema, type) => {
    expect(typeOfSchema(schema)).toEqual(type)
  })

  test.each<Type>(['any', 'string', 'null', { list: { map: person } }, person])(
    'of %j has that type',
    (type) => {
      expect(typeOfSchema(schemaOfType(type))).toEqual(type)
    },
  )

  test('whose references fan out has a type of bounded size', () => {
    const definitions = Array.from({ length: 60 }, (_, at) => [`d${at}`, twice(at)])
    const type = typeOfSchema({ $ref: '#/$defs/d0', $defs: Object.fromEntries(definitions) })
    expect(isLargerThan(type, 2_000)).toBe(false)
  })
})

test('A type of types of types is known to be large without counting all', () => {
  let type: Type = 'string'
  for (let depth = 0; depth < 200; depth++) type = objectOf({ a: type, b: type })
  expect(isLargerThan(type, 500)).toBe(true)
})

test.each<[value: unknown, type: Type]>([
  [{ a: [1, 2.5], b: null }, objectOf({ a: { list: 'number' }, b: 'null' })],
  [['a', 1], { list: 'any' }],
  [[], { list: 'any' }],
])('%j has a type', (value, type) => expect(typeOfValue(value)).toEqual(type))

test('One type stands for several', () => {
  expect(unified(['string', 'string'])).toBe('string')
  expect(unified(['integer', 'number', 'integer'])).toBe('number')
  expect(unified(['string', 'null'])).toBe('any')
  expect(unified([])).toBe('any')
})

test.each<[from: Type, to: Type, path: string[] | null]>([
  ['integer', 'number', null],
  ['number', 'integer', []],
  ['any', person, null],
  [person, 'any', null],
  [objectOf({ name: 'string' }), person, null],
  [objectOf({ name: 'integer' }), person, ['name']],
  [objectOf({ age: 'integer' }), person, ['name']],
  [objectOf({ name: 'string', old: 'boolean' }), person, ['old']],
  [{ list: person }, { list: { map: 'any' } }, null],
  [{ list: person }, { list: { map: 'string' } }, ['age']],
  [{ map: 'integer' }, person, ['name']],
  [{ list: 'string' }, { map: 'string' }, []],
  ['string', { list: 'string' }, []],
])('%j as %j: the mismatch is at %j', (from, to, path) => {
  expect(mismatchOf(from, to)?.path ?? null).toEqual(path)
})

import { describe, expect, test } from '@jest/globals'
import {
  type Redaction,
  redacted,
  redactionFault,
  redactionOfSchema,
  withoutAnnotations,
} from '../../lib/ai/redaction.ts'
import { validate } from '../../lib/ai/validate.ts'
import { lookups, specOf } from '../support/ai/specs.ts'

// What `x-redact` hides of values, and how redacted values pass from node to node.

const text = { type: 'string' }
const secret = { ...text, 'x-redact': true }
const shown = { ...text, 'x-redact': false }
const object = (properties: object, more: object = {}) => ({ type: 'object', properties, ...more })

/** A value as readers see it. */
const seen = (schema: object, value: unknown, isMade = false): unknown =>
  redacted(value, redactionOfSchema(schema, isMade))

describe('a schema redacts', () => {
  const mark = '[redacted]'
  const person = { name: 'Ann', card: '4111' }
  test.each<[what: string, schema: object, value: unknown, seen: unknown]>([
    ['nothing without the annotation', object({ name: text }), person, person],
    ['a field', object({ name: text, card: secret }), person, { name: 'Ann', card: mark }],
    ['a field of another type than its schema says', object({ card: secret }), { card: [1] }, { card: mark }],
    ['all of it', { ...object({ name: text }), 'x-redact': true }, person, mark],
    ['all but a field', object({ name: shown }, { 'x-redact': true }), person, { name: 'Ann', card: mark }],
    [
      'items of a list',
      { type: 'array', items: object({ card: secret }) },
      [person],
      [{ name: 'Ann', card: mark }],
    ],
    ['all, if it redacts each field', { type: 'object', additionalProperties: secret }, person, mark],
    [
      'fields without a name, by a pattern',
      { ...object({ name: text }), patternProperties: { '^c': secret } },
      person,
      mark,
    ],
    [
      'by a reference',
      { ...object({ card: { $ref: '#/$defs/card' } }), $defs: { card: secret } },
      person,
      { name: 'Ann', card: mark },
    ],
    [
      'if one of several schemas says so',
      object({ card: { anyOf: [text, secret] } }),
      person,
      { name: 'Ann', card: mark },
    ],
    [
      'what refers to itself',
      { $ref: '#/$defs/tree', $defs: { tree: object({ value: secret, next: { $ref: '#/$defs/tree' } }) } },
      { value: 1, next: { value: 2, next: {} } },
      { value: mark, next: mark },
    ],
    [
      'what has fields where the schema has a text',
      object({ a: object({ b: secret }) }),
      { a: 'plain' },
      { a: 'plain' },
    ],
    ['a text where the schema hides all fields', { additionalProperties: secret }, 'plain', mark],
    [
      'a field named like the annotation',
      object({ 'x-redact': text }),
      { 'x-redact': 'a' },
      { 'x-redact': 'a' },
    ],
  ])('%s', (_, schema, value, wanted) => {
    expect(seen(schema, value)).toEqual(wanted)
  })

  test('what is made of redacted values, but for what it shows', () => {
    expect(seen(object({ name: text }), person, true)).toBe(mark)
    expect(seen(object({ name: shown }), person, true)).toEqual({ name: 'Ann', card: mark })
    expect(seen({ ...object({ name: text, card: secret }), 'x-redact': false }, person, true)).toEqual({
      name: 'Ann',
      card: mark,
    })
    const byReference = { $ref: '#/$defs/out', $defs: { out: object({ name: shown }) } }
    expect(seen(byReference, person, true)).toEqual({ name: 'Ann', card: mark })
  })

  test('in bounded time, if references fan out', () => {
    const $defs = Object.fromEntries(
      Array.from({ length: 30 }, (_, at) => {
        const next = { $ref: `#/$defs/d${at + 1}` }
        return [`d${at}`, object({ a: next, b: next, c: secret })] as const
      }),
    )
    expect(seen({ $ref: '#/$defs/d0', $defs }, { a: { a: 1 }, c: 1 })).toMatchObject({ c: mark })
  })
})

test.each<[fault: string, schema: object]>([
  ['neither true nor false', object({ card: { 'x-redact': 'yes' } })],
  ['within `not`', object({ card: { not: secret } })],
  ['within `if`', { if: object({ card: shown }), else: {} }],
])('an annotation is refused %s', async (fault, schema) => {
  expect(redactionFault(schema)).toContain(fault)
  const spec = specOf({ a: { kind: 'template', value: 1 } }, { input_schema: schema, models: {} })
  expect((await validate(spec, lookups())).others).toEqual([
    { pointer: '/input_schema', code: 'schema_invalid', message: expect.stringContaining(fault) },
  ])
})

test('a provider of models gets schemas without annotations', () => {
  const schema = object({ card: secret, 'x-redact': text }, { $defs: { a: secret }, allOf: [secret] })
  expect(withoutAnnotations(schema)).toEqual(
    object({ card: text, 'x-redact': text }, { $defs: { a: text }, allOf: [text] }),
  )
})

const llm = (content: string, more: object = {}) => ({
  kind: 'llm',
  model: 'fast',
  messages: [{ role: 'user', content }],
  ...more,
})
const template = (value: unknown, more: object = {}) => ({ kind: 'template', value, ...more })
const redactedWorkflow = async () => ({
  input: 'any',
  output: 'any',
  redaction: true,
  depth: 1,
  calls: ['w'],
})

describe('what is made of a redacted value', () => {
  const input_schema = object({
    who: object({ name: text, card: secret }),
    cards: { type: 'array', items: secret },
    note: text,
  })

  async function redactedOf(nodes: Record<string, unknown>, output: unknown = null, more: object = {}) {
    const {
      nodes: faults,
      others,
      valid,
    } = await validate(specOf(nodes, { input_schema, output }), lookups(more))
    expect({ faults, others }).toEqual({ faults: {}, others: [] })
    return valid?.plan.redacted
  }
  const outputOf = async (node: object, more: object = {}): Promise<Redaction | undefined> =>
    (await redactedOf({ node }, null, more))?.nodes['node']?.output

  test.each<[what: string, node: object, redaction: Redaction | undefined]>([
    ['not what is made of others', template('${input.who.name} ${input.note}'), undefined],
    ['the value itself', template('${input.who.card}'), true],
    ['named otherwise', template('${input["who"]["card"]}'), true],
    ['a part of a text', template('Card ${input.who.card}'), true],
    ['a computed one', template('${size(input.who.card) + 1}'), true],
    ['what is chosen by it', template('${input.who.card == "1" ? "a" : "b"}'), true],
    ['one of two', template('${input.note == "1" ? input.who.card : "b"}'), true],
    ['out of a list', template('${input.cards.map(c, c + "!")}'), true],
    ['by a name of its own', template('${cel.bind(x, input.who, x.card)}'), true],
    ['the place within a whole', template('${input.who}'), { fields: { card: true }, each: null }],
    [
      'the place within a form',
      template({ a: '${input.note}', b: ['${input.who.card}'] }),
      { fields: { b: true }, each: null },
    ],
    ['an answer', llm('Whose is ${input.who.card}?'), true],
    [
      'but for what a schema shows',
      llm('${input.who.card}', { output_schema: object({ kind: shown, why: text }) }),
      { fields: { kind: null }, each: true },
    ],
    [
      'an answer, by its own schema',
      llm('${input.note}', { output_schema: object({ pin: secret }) }),
      { fields: { pin: true }, each: null },
    ],
    ['what a tool answers', { kind: 'tool', tool: 'docs', arguments: { query: '${input.who.card}' } }, true],
    ['what a search finds', { kind: 'retrieve', collection: 'manuals', query: '${input.who.card}' }, true],
    [
      'what a server answers, but the status',
      { kind: 'http', method: 'GET', url: 'https://a.example/${input.who.card}' },
      { fields: { status: null }, each: true },
    ],
    ['items', { kind: 'map', items: 'input.cards', do: template('${item}') }, true],
    ['not the place of an item', { kind: 'map', items: 'input.cards', do: template('${index}') }, null],
    [
      'not the case of a switch',
      { kind: 'switch', cases: [{ name: 'a', when: 'input.who.card == "1"' }], default: 'b' },
      null,
    ],
    ['not what runs if it says so', template('yes', { when: 'input.who.card == "1"' }), null],
  ])('is redacted: %s', async (_, node, redaction) => {
    expect(await outputOf(node)).toEqual(redaction)
  })

  test('in all that follows, and in the run’s output', async () => {
    const plan = await redactedOf(
      {
        one: template({ a: '${input.who.card}', b: 1 }),
        two: template('${input.note}'),
        both: { kind: 'merge', needs: ['one', 'two'], take: 'object' },
        ask: {
          kind: 'approve',
          needs: ['both'],
          message: 'Is $${x} ${nodes.one.output.a} of ${input.note}?',
          deadline_sec: 60,
        },
      },
      { all: '${nodes.both.output}', b: '${nodes.one.output.b}', by: '${nodes.ask.output.by}' },
    )
    expect(plan).toMatchObject({
      nodes: {
        both: { output: { fields: { one: { fields: { a: true } } }, each: null } },
        ask: { output: null, message: 'Is $${x} [redacted] of ${input.note}?' },
      },
      output: { fields: { all: { fields: { one: { fields: { a: true } } } } }, each: null },
    })
    expect(plan?.nodes).not.toHaveProperty('two')
  })

  test('also if another workflow has made it', async () => {
    const call = { kind: 'workflow', workflow: 'w', input: { a: 1 } }
    expect(await redactedOf({ call }, '${nodes.call.output}', { workflow: redactedWorkflow })).toMatchObject({
      nodes: { call: { is_given: false, output: true } },
      output: true,
    })
  })
})

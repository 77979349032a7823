import { describe, expect, test } from '@jest/globals'
import { areas } from '../../api/document/areas.ts'
import { examples } from '../../api/document/examples.ts'
import { fieldWords, hasWords, plainNames } from '../../api/document/field-words.ts'
import { collectionsOf, operationIdOf } from '../../api/document/operation-ids.ts'
import { isDocumented, openApiDocument } from '../../api/openapi.ts'
import { parse } from '../../api/problems.ts'
import { validate } from '../../lib/ai/validate.ts'
import { declared } from '../support/declared.ts'

// What the document says beyond the declarations: areas, names, examples, filters.

interface Parameter {
  name: string
  description?: string
  schema: { type?: string | string[]; format?: string; enum?: string[] }
}
interface Described {
  operationId: string
  tags: string[]
  parameters: Parameter[]
  requestBody?: { content: Record<string, { example?: unknown }> }
}
const document = openApiDocument(declared, 'http://127.0.0.1:7080') as unknown as {
  info: { description: string }
  tags: { name: string }[]
  paths: Record<string, Record<string, Described>>
}
const described = Object.values(document.paths).flatMap((methods) => Object.values(methods))
const documented = declared.filter(isDocumented)
const collections = collectionsOf(documented)

const never = (): never => {
  throw new Error('the example uses nothing')
}
const parameterOf = (id: string, name: string): Parameter | undefined =>
  described.find(({ operationId }) => operationId === id)?.parameters.find((one) => one.name === name)

test('each area has operations, and each operation an area', () => {
  const used = new Set(described.flatMap(({ tags }) => tags))
  expect([...used].toSorted()).toEqual(areas.map(({ name }) => name).toSorted())
  expect(document.tags.map(({ name }) => name)).toEqual(areas.map(({ name }) => name))
})

test('operations have names that an SDK can carry', () => {
  const ids = described.map(({ operationId }) => operationId)
  expect(new Set(ids).size).toBe(ids.length)
  expect(ids.filter((id) => !/^[a-z]+[A-Z][A-Za-z]+$/.test(id))).toEqual([])
  expect(ids).toEqual(
    expect.arrayContaining([
      'listContainers',
      'createContainer',
      'getContainer',
      'updateContainer',
      'deleteContainer',
      'startContainer',
      'attachContainerDisk',
      'createDiskSnapshot',
      'deployApplication',
      'getOperation',
    ]),
  )
})

describe('an example', () => {
  const withBody = documented
    .filter(({ body, bytes }) => body && !bytes)
    .map((operation) => ({ id: operationIdOf(operation, collections), operation }))

  test.each(withBody)('of $id is a body that the operation takes', ({ id, operation }) => {
    const { body, example = examples[id] } = operation
    expect(example).toBeDefined()
    if (body) parse(body, structuredClone(example), 422)
    const shown = described.find(({ operationId }) => operationId === id)?.requestBody?.content ?? {}
    expect(Object.values(shown).map((one) => one.example)).toContainEqual(example)
  })

  test('is of an operation that there is', () => {
    const ids = new Set(withBody.flatMap(({ id, operation }) => (operation.example ? [] : id)))
    expect(Object.keys(examples).filter((id) => !ids.has(id))).toEqual([])
  })

  test('of a workflow is a draft that can be published', async () => {
    const { spec } = examples['createWorkflow'] as { spec: unknown }
    const most = { tokens: 1000, usd: 1, wall_sec: 60 }
    const lookups = new Proxy({ most }, { get: (of, name) => (name === 'most' ? of.most : never) })
    expect(await validate(spec, lookups as unknown as Parameters<typeof validate>[1])).toMatchObject({
      nodes: {},
      others: [],
      valid: { spec },
    })
  })
})

describe('a field', () => {
  type Schema = Record<string, unknown>
  /** Each property of a schema, with the path to it. */
  function* fieldsIn(schema: unknown, at: string): Generator<{ name: string; at: string; property: Schema }> {
    if (typeof schema !== 'object' || schema === null) return
    for (const [key, value] of Object.entries(schema)) {
      if (['default', 'enum', 'example', 'examples'].includes(key)) continue
      if (key === 'properties')
        for (const [name, property] of Object.entries(value as Record<string, Schema>))
          yield { name, at: `${at}.${name}`, property }
      yield* fieldsIn(value, key === 'properties' || Array.isArray(schema) ? at : `${at}/${key}`)
    }
  }
  const fields = [...fieldsIn(document, '#')]
  const silent = fields.filter(({ property }) => !hasWords(property))
  const own = new Set(silent.map(({ name }) => name))
  const named = new Set(fields.map(({ name }) => name))

  test('says what it means, unless its name does', () => {
    expect(fields.length).toBeGreaterThan(2000)
    expect(silent.filter(({ name }) => !plainNames.has(name)).map(({ at }) => at)).toEqual([])
  })

  test('whose name is plain, or has words for all of them, is in the document', () => {
    expect([...plainNames].filter((name) => !own.has(name))).toEqual([])
    const words = new Map(
      fields.map(({ name, property }) => [`${name}: ${String(property['description'])}`, 1]),
    )
    expect(
      Object.entries(fieldWords).flatMap(([name, said]) =>
        named.has(name) && words.has(`${name}: ${said}`) ? [] : [name],
      ),
    ).toEqual([])
    expect(Object.keys(fieldWords).filter((name) => plainNames.has(name))).toEqual([])
  })
})

describe('a filter', () => {
  test.each<[string, string, object]>([
    ['a number', 'memory_mib', { schema: { type: 'integer' } }],
    ['a fraction', 'cpu_cores', { schema: { type: 'number' } }],
    [
      'one of some values',
      'status',
      { schema: { type: 'string', enum: expect.arrayContaining(['running']) } },
    ],
    ['an id', 'id', { schema: { type: 'string', format: 'uuid' } }],
    ['an id that may be null', 'host_id', { schema: { type: ['string', 'null'], format: 'uuid' } }],
    ['a number that may be null', 'exit_code', { schema: { type: ['integer', 'null'] } }],
    ['a time', 'created_at', { schema: { type: 'string', format: 'date-time' } }],
    ['a list', 'command', { schema: { type: 'string' }, description: expect.stringMatching(/As JSON$/) }],
    ['tags', 'tags', { schema: { type: 'string' }, description: expect.stringContaining('tags.env=prod') }],
  ])('on %s has its field’s type', (_, name, wanted) => {
    expect(parameterOf('listContainers', name)).toMatchObject(wanted)
  })
})

test('the introduction says how to authenticate, follow, walk, repeat and read errors', () => {
  for (const words of [
    '## Authentication',
    'Operation-Location',
    'next_cursor',
    'Idempotency-Key',
    'quota_exceeded',
  ])
    expect(document.info.description).toContain(words)
})

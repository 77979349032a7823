import * as fc from 'fast-check'
import { z } from 'zod'
import type { Operation } from '../../api/operation.ts'

/** A request as it is sent: the body is text, whatever its content type says. */
export interface FuzzedRequest {
  method: string
  url: string
  headers: Record<string, string>
  body: string | undefined
}

type Schema = Record<string, unknown>

const hostile = fc.constantFrom(
  '',
  ' ',
  '0',
  '-1',
  '1e309',
  'null',
  'true',
  '[]',
  '{"$gt":""}',
  '__proto__',
  'constructor',
  '../../etc/passwd',
  '%00',
  'a'.repeat(5000),
  '\u0000',
  '\u{1F600}',
  "' or 1=1 --",
  '<script>',
  '(a+)+$',
  '9'.repeat(400),
  '$where',
  '$ne',
  'a.b',
  '\\',
  '..%2f..%2fetc%2fpasswd',
  'x\r\nset-cookie: a=b',
  '\ud800', // half a character
  '\u202egnp.exe', // from right to left
  'a\u0000b',
  '0x10',
  '007',
  'NaN',
  '-0',
  '1e5',
  '2026-02-30T00:00:00Z',
  '+275760-09-13T00:00:00.001Z',
  '0000-01-01T00:00:00.000Z',
  '127.0.0.1\n10.0.0.1',
  '10.0.0.0/-1',
  '::ffff:0:0/96',
)
const nested = (depth: number): unknown => {
  let value: unknown = 'deep'
  for (let level = 0; level < depth; level++) value = level % 2 ? [value] : { a: value }
  return value
}
const json = fc.oneof(
  fc.jsonValue({ maxDepth: 3 }),
  fc.constant({ $gt: '' }),
  fc.constant({ $where: 'sleep(1000)' }),
  fc.constant(JSON.parse('{"__proto__": {"admin": true}}') as object),
  fc.constant({ constructor: { prototype: { admin: true } } }),
  hostile,
  // Beyond what MongoDB stores, and what a URL holds.
  { weight: 1, arbitrary: fc.constantFrom(nested(200), nested(1000), 'é'.repeat(20_000)) },
)
/** As they are: no JSON, or more than a parser wants. */
const broken = fc.constantFrom(
  '[',
  '{"a":',
  '['.repeat(50_000),
  '{"a":1,"a":2}',
  '\ufeff{}',
  '"\\ud800"',
  '-',
  '1e999',
)

/** Texts, some of them ids of things that are not the caller's. */
const textsWith = (foreign: string[]): fc.Arbitrary<string> =>
  fc.oneof(
    hostile,
    fc.string({ maxLength: 40 }),
    fc.string({ unit: 'binary', maxLength: 20 }),
    fc.uuid(),
    ...(foreign.length ? [fc.constantFrom(...foreign)] : []),
  )

/** Mostly valid for the schema, so that the input gets past validation; now and then a part is wrong. */
function near(schema: Schema, text: fc.Arbitrary<string>): fc.Arbitrary<unknown> {
  return fc.oneof({ weight: 4, arbitrary: shaped(schema, text) }, { weight: 1, arbitrary: json })
}

function shaped(schema: Schema, text: fc.Arbitrary<string>): fc.Arbitrary<unknown> {
  if (Array.isArray(schema['enum'])) return fc.constantFrom(...(schema['enum'] as unknown[]))
  if ('const' in schema) return fc.constant(schema['const'])
  const choices = (schema['anyOf'] ?? schema['oneOf']) as Schema[] | undefined
  if (choices) return fc.oneof(...choices.map((choice) => near(choice, text)))
  switch (schema['type']) {
    case 'object': {
      const properties = Object.entries((schema['properties'] ?? {}) as Record<string, Schema>)
      const known = fc.record(Object.fromEntries(properties.map(([name, of]) => [name, near(of, text)])), {
        requiredKeys: (schema['required'] ?? []) as string[],
      })
      const more = fc.dictionary(text, json, { maxKeys: 2 })
      return fc
        .tuple(known, fc.oneof({ weight: 5, arbitrary: fc.constant({}) }, { weight: 1, arbitrary: more }))
        .map(([fields, others]) => ({ ...fields, ...others }))
    }
    case 'array':
      return fc.array(near((schema['items'] ?? {}) as Schema, text), { maxLength: 4 })
    case 'integer':
      return fc.oneof(fc.integer({ min: -2, max: 100 }), fc.maxSafeInteger())
    case 'number':
      return fc.oneof(fc.integer({ min: -2, max: 100 }), fc.double())
    case 'boolean':
      return fc.boolean()
    case 'null':
      return fc.constant(null)
    default:
      return text
  }
}

const schemaOf = (type: z.ZodType): Schema =>
  z.toJSONSchema(type, { io: 'input', unrepresentable: 'any', reused: 'inline' }) as Schema

/** A tenant's things: the path parameters of one of them, and all ids. */
interface Things {
  ids: Record<string, string>
  all: string[]
}

/**
 * Requests for one operation, most of them wrong somewhere: path, query, headers, body. `ids` are path parameters of an
 * existing resource, which every other request uses. `foreign` are another tenant's: they come wherever a text does.
 */
export function badRequests(
  operation: Operation,
  ids: Record<string, string>,
  foreign: Things = { ids: {}, all: [] },
): fc.Arbitrary<FuzzedRequest> {
  const text = textsWith(foreign.all)
  const { method, path, query, body, form } = operation
  const mediaType = form ? 'application/x-www-form-urlencoded' : 'application/json'
  const names = [...path.matchAll(/\{(\w+)\}/g)].map(([, name = '']) => name)
  const param = text.filter((value) => !/^\.{0,2}$/.test(value)) // values that a URL would lose
  const params = fc.tuple(
    ...names.map((name) => {
      const known = [ids[name], foreign.ids[name]].filter((id) => id !== undefined)
      return fc.oneof(param, known.length ? fc.constantFrom(...known) : fc.uuid())
    }),
  )
  const fields = query ? Object.keys(schemaOf(query)['properties'] ?? {}) : []
  const queries = fc.array(fc.tuple(fc.oneof(fc.constantFrom('limit', ...fields), text), text), {
    maxLength: 3,
  })
  const headers = fc.record(
    {
      'idempotency-key': fc.stringMatching(/^[\x20-\x7e]{1,300}$/),
      'content-type': fc.constantFrom(
        'application/json',
        'text/plain',
        'application/xml',
        'x',
        'application/json; charset=x',
      ),
      accept: fc.constantFrom('*/*', 'text/html', 'nonsense'),
      'accept-encoding': fc.constantFrom('gzip', 'nonsense', 'identity'),
      range: fc.constantFrom('bytes=0-0', 'bytes=-'),
      'if-none-match': fc.constantFrom('*', '"x"'),
      'x-forwarded-for': fc.constantFrom('127.0.0.1', 'nonsense'),
    },
    { requiredKeys: [] },
  )
  const said = body
    ? near(schemaOf(body), text).map((value) => JSON.stringify(value) ?? 'null')
    : json.map((value) => JSON.stringify(value) ?? '')
  const asForm = near(body ? schemaOf(body) : {}, text).map((value) =>
    new URLSearchParams(
      Object.entries(Object(value) as object).map(([name, of]): [string, string] => [name, String(of)]),
    ).toString(),
  )
  const bodies =
    method === 'GET'
      ? fc.constant(undefined)
      : fc.oneof(
          { weight: body ? 8 : 1, arbitrary: form ? asForm : said },
          { weight: 1, arbitrary: fc.oneof(text, broken) },
          { weight: 1, arbitrary: fc.constant(undefined) },
        )
  return fc.tuple(params, queries, headers, bodies).map(([filling, asked, more, sent]) => {
    let next = 0
    const filled = path.replaceAll(/\{\w+\}/g, () => encode(filling[next++] ?? ''))
    const search = asked.map(([name, value]) => `${encode(name)}=${encode(value)}`).join('&')
    return {
      method,
      url: search ? `${filled}?${search}` : filled,
      headers: { ...(sent === undefined ? {} : { 'content-type': mediaType }), ...more },
      body: sent,
    }
  })
}

/** A URL cannot hold lone surrogates. */
const encode = (value: string): string => encodeURIComponent(value.toWellFormed())

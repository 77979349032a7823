import { bounds } from './bounds.ts'

// What of a value readers of a run do not see: `x-redact` in a JSON Schema says so.

/** All of a value (true), parts of it, or nothing (null). It is JSON, and is stored with a published version. */
export type Redaction = true | PartRedaction | null

export interface PartRedaction {
  fields: Record<string, Redaction>
  /** Of all other fields, and of the items of a list. */
  each: Redaction
}

/** What of a run is redacted. Stored with the plan of its version. */
export interface Redacted {
  input: Redaction
  nodes: Record<string, RedactedNode>
  output: Redaction
}

export interface RedactedNode {
  /** Its expressions have redacted values. */
  is_given: boolean
  /** Its output. */
  output: Redaction
  /** Of an `approve` node: the message with marks in the place of what is redacted. */
  message?: string
}

/** What stands in the place of a redacted value. */
export const mark = '[redacted]'

const keyword = 'x-redact'

type Schema = Record<string, unknown>
const isRecord = (value: unknown): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

/** Of a field; null: of an item of a list. */
export function redactionAt(redaction: Redaction, name: string | null): Redaction {
  if (redaction === true || redaction === null) return redaction
  return name !== null && Object.hasOwn(redaction.fields, name) ? redaction.fields[name]! : redaction.each
}

/** Redacts what any of them does. */
export function union(redactions: readonly Redaction[]): Redaction {
  const some = redactions.filter((one) => one !== null)
  if (some.includes(true)) return true
  const parts = some.filter((one) => one !== true)
  if (parts.length < 2) return parts[0] ?? null
  const names = new Set(parts.flatMap(({ fields }) => Object.keys(fields)))
  return part(
    Object.fromEntries([...names].map((name) => [name, union(parts.map((one) => redactionAt(one, name)))])),
    union(parts.map(({ each }) => each)),
  )
}

/** As short as it can be said: one that redacts everything is true, one that redacts nothing is null. */
export function part(fields: Record<string, Redaction>, each: Redaction): Redaction {
  const others = Object.entries(fields).filter(([, one]) => JSON.stringify(one) !== JSON.stringify(each))
  if (others.length > 0) return { fields: Object.fromEntries(others), each }
  return each === true || each === null ? each : { fields: {}, each }
}

/** The value with marks in the place of what is redacted. */
export function redacted(value: unknown, redaction: Redaction): unknown {
  if (redaction === null) return value
  if (redaction === true) return mark
  if (Array.isArray(value)) return value.map((item) => redacted(item, redactionAt(redaction, null)))
  // A value of another form than the schema's: better too little of it.
  if (!isRecord(value)) return redaction.each === null ? value : mark
  const entries = Object.entries(value).map(
    ([name, inner]) => [name, redacted(inner, redactionAt(redaction, name))] as const,
  )
  return Object.fromEntries(entries)
}

const listsOfSchemas = ['allOf', 'anyOf', 'oneOf', 'prefixItems']
const mapsOfSchemas = ['properties', 'patternProperties', '$defs', 'definitions', 'dependentSchemas']
const schemas = [
  'items',
  'contains',
  'unevaluatedItems',
  'additionalProperties',
  'unevaluatedProperties',
  'then',
  'else',
  'if',
  'not',
  'propertyNames',
]
/** What they say describes no part of a value. */
const describingNothing = ['if', 'not', 'propertyNames']

/** The schemas right within one, with the keyword that they are under. */
function within(schema: Schema): [keyword: string, inner: unknown][] {
  return Object.entries(schema).flatMap(([name, inner]): [string, unknown][] => {
    if (schemas.includes(name)) return [[name, inner]]
    if (listsOfSchemas.includes(name) && Array.isArray(inner)) return inner.map((one) => [name, one])
    if (mapsOfSchemas.includes(name) && isRecord(inner)) return Object.values(inner).map((one) => [name, one])
    return []
  })
}

/** What is wrong with the annotations of a schema, or null. */
export function redactionFault(schema: unknown): string | null {
  if (!isRecord(schema)) return null
  const says = schema[keyword]
  if (says !== undefined && typeof says !== 'boolean')
    return `has an \`${keyword}\` that is neither true nor false`
  for (const [name, inner] of within(schema)) {
    if (describingNothing.includes(name) && isAnnotated(inner, [true, false]))
      return `has an \`${keyword}\` within \`${name}\`, which describes no part of a value`
    const fault = redactionFault(inner)
    if (fault) return fault
  }
  return null
}

function isAnnotated(schema: unknown, as: readonly boolean[] = [true]): boolean {
  if (!isRecord(schema)) return false
  return as.includes(schema[keyword] as boolean) || within(schema).some(([, inner]) => isAnnotated(inner, as))
}

/** The schema without annotations: providers of models refuse keywords that they do not know. */
export function withoutAnnotations(schema: Schema): Schema {
  const entries = Object.entries(schema).flatMap(([name, inner]): [string, unknown][] => {
    if (name === keyword) return []
    if (listsOfSchemas.includes(name) && Array.isArray(inner)) return [[name, inner.map(plain)]]
    if (mapsOfSchemas.includes(name) && isRecord(inner))
      return [[name, Object.fromEntries(Object.entries(inner).map(([key, one]) => [key, plain(one)]))]]
    return [[name, schemas.includes(name) ? plain(inner) : inner]]
  })
  return Object.fromEntries(entries)
}
const plain = (inner: unknown): unknown => (isRecord(inner) ? withoutAnnotations(inner) : inner)

/**
 * What a schema redacts. `isInherited`: the value is made of redacted values, and all of it is redacted but for what the schema
 * shows by `"x-redact": false`. Where schemas are combined, the strictest counts.
 */
export function redactionOfSchema(schema: unknown, isInherited = false): Redaction {
  if (!isAnnotated(schema, isInherited ? [true, false] : [true])) return asLeaf(isInherited)
  let left: number = bounds.types
  const hasAny = isAnnotated(schema)
  const read = (one: unknown, inherited: boolean, refs: readonly string[]): Redaction => {
    if (!isRecord(one)) return asLeaf(inherited)
    if (left-- <= 0) return asLeaf(inherited || hasAny)
    const says = one[keyword]
    const own = typeof says === 'boolean' ? says : inherited
    const reads = (inner: unknown): Redaction => read(inner, own, refs)
    const of = (...names: string[]): Redaction[] =>
      within(one).flatMap(([name, inner]) => (names.includes(name) ? [reads(inner)] : []))
    const combined = [
      ...of('allOf', 'anyOf', 'oneOf', 'then', 'else', 'dependentSchemas'),
      ...('$ref' in one ? [readRef(one['$ref'], own, refs)] : []),
      ...('$dynamicRef' in one ? [asLeaf(own || hasAny)] : []),
    ]
    const hasParts = [...parted, 'properties'].some((name) => name in one)
    if (combined.length > 0 && !hasParts) return union(combined)
    return union([...combined, readParts(one, own, of, reads)])
  }
  const readRef = (ref: unknown, own: boolean, refs: readonly string[]): Redaction => {
    const [, room, name] = /^#\/(\$defs|definitions)\/([^/~%]+)$/.exec(String(ref)) ?? []
    const defined = room && name && isRecord(schema) ? schema[room] : undefined
    const known = isRecord(defined) && name && Object.hasOwn(defined, name) && !refs.includes(String(ref))
    return known ? read(defined[name], own, [...refs, String(ref)]) : asLeaf(own || hasAny)
  }
  return read(schema, isInherited, [])
}

const asLeaf = (isRedacted: boolean): Redaction => (isRedacted ? true : null)
const ofLists = ['items', 'prefixItems', 'contains', 'unevaluatedItems']
const ofObjects = ['additionalProperties', 'patternProperties', 'unevaluatedProperties']
const parted = [...ofLists, ...ofObjects]

function readParts(
  one: Schema,
  own: boolean,
  of: (...names: string[]) => Redaction[],
  reads: (inner: unknown) => Redaction,
): Redaction {
  const others = asLeaf(own)
  const isClosed = (name: string): boolean => isRecord(one[name])
  const items = union([...of(...ofLists), ...(isClosed('items') ? [] : [others])])
  const fields = union([...of(...ofObjects), ...(isClosed('additionalProperties') ? [] : [others])])
  const each = one['type'] === 'array' ? items : one['type'] === 'object' ? fields : union([items, fields])
  const patterns = of('patternProperties')
  const properties = isRecord(one['properties']) ? Object.entries(one['properties']) : []
  return part(
    Object.fromEntries(properties.map(([name, inner]) => [name, union([reads(inner), ...patterns])])),
    each,
  )
}

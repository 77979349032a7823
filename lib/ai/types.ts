import { bounds } from './bounds.ts'

// The types of values that pass from node to node: as much of JSON Schema as the type checker of expressions takes.
// They are JSON themselves, and are stored with a published version.

export type Type =
  | 'any'
  | 'string'
  | 'integer'
  | 'number'
  | 'boolean'
  | 'null'
  | { list: Type }
  | { map: Type }
  | ObjectType

/** It has these fields and no others; those in `required` always. */
export interface ObjectType {
  object: Record<string, Type>
  required: string[]
}

type Schema = Record<string, unknown>

const isRecord = (value: unknown): value is Schema =>
  typeof value === 'object' && value !== null && !Array.isArray(value)

export const isObjectType = (type: Type): type is ObjectType => typeof type === 'object' && 'object' in type

/** An object that always has these fields. */
export const objectOf = (fields: Record<string, Type>): ObjectType => ({
  object: fields,
  required: Object.keys(fields),
})

/**
 * The type of what a JSON Schema takes; `any` where a schema says more than a type can. An object with `properties` has
 * no others, unless the schema says so by `additionalProperties`: a reference to a field that nobody declared is
 * usually a slip.
 */
export function typeOfSchema(schema: unknown): Type {
  let left: number = bounds.types
  const read = (part: unknown, refs: readonly string[]): Type => {
    if (!isRecord(part) || left-- <= 0) return 'any'
    if (typeof part['$ref'] === 'string') return readRef(part['$ref'], refs)
    if (combining.some((keyword) => keyword in part)) return 'any'
    if ('const' in part) return typeOfValue(part['const'])
    if (Array.isArray(part['enum'])) return unified(part['enum'].map(typeOfValue))
    return readPlain(part, refs)
  }
  const readRef = (ref: string, refs: readonly string[]): Type => {
    const [, room, name] = /^#\/(\$defs|definitions)\/([^/~%]+)$/.exec(ref) ?? []
    if (!room || !name || refs.includes(ref) || !isRecord(schema)) return 'any'
    const defined = schema[room]
    return isRecord(defined) && Object.hasOwn(defined, name) ? read(defined[name], [...refs, ref]) : 'any'
  }
  const readPlain = (part: Schema, refs: readonly string[]): Type => {
    switch (part['type']) {
      case 'string':
      case 'integer':
      case 'number':
      case 'boolean':
      case 'null':
        return part['type']
      case 'array':
        return { list: 'prefixItems' in part ? 'any' : read(part['items'], refs) }
      case 'object':
        return readObject(part, refs)
      default:
        return 'any'
    }
  }
  const readObject = (part: Schema, refs: readonly string[]): Type => {
    const { properties, additionalProperties: others, required } = part
    const isOpen = others !== undefined && others !== false
    if (!isRecord(properties)) return { map: isRecord(others) ? read(others, refs) : 'any' }
    if (isOpen || 'patternProperties' in part) return 'any'
    const fields = Object.entries(properties).map(([name, inner]) => [name, read(inner, refs)] as const)
    return {
      object: Object.fromEntries(fields),
      required: Array.isArray(required) ? required.filter((name) => Object.hasOwn(properties, name)) : [],
    }
  }
  return bounded(read(schema, []))
}

const combining = ['allOf', 'anyOf', 'oneOf', 'not', 'if', '$dynamicRef', 'dependentSchemas']

/** A JSON Schema that takes the values of the type. */
export function schemaOfType(type: Type): Schema {
  if (type === 'any') return {}
  if (typeof type === 'string') return { type }
  if ('list' in type) return { type: 'array', items: schemaOfType(type.list) }
  if ('map' in type) return { type: 'object', additionalProperties: schemaOfType(type.map) }
  const fields = Object.entries(type.object).map(([name, inner]) => [name, schemaOfType(inner)] as const)
  return {
    type: 'object',
    properties: Object.fromEntries(fields),
    required: type.required,
    additionalProperties: false,
  }
}

/** The type of one JSON value. */
export function typeOfValue(value: unknown): Type {
  if (value === null) return 'null'
  if (Array.isArray(value)) return { list: unified(value.map(typeOfValue)) }
  switch (typeof value) {
    case 'string':
    case 'boolean':
      return typeof value as 'string' | 'boolean'
    case 'number':
      return Number.isInteger(value) ? 'integer' : 'number'
    case 'object':
      return objectOf(
        Object.fromEntries(Object.entries(value).map(([name, inner]) => [name, typeOfValue(inner)])),
      )
    default:
      return 'any'
  }
}

/** One type for values of all of these; of none it is `any`. */
export function unified(types: readonly Type[]): Type {
  const different = [...new Map(types.map((type) => [JSON.stringify(type), type])).values()]
  if (different.length < 2) return different[0] ?? 'any'
  return different.every((type) => type === 'integer' || type === 'number') ? 'number' : 'any'
}

/** Where a value of one type does not fit another, and why. */
export interface Mismatch {
  path: string[]
  message: string
}

/** Null if values of `from` may fit `to`: a type that is not known until the run fits everything. */
export function mismatchOf(from: Type, to: Type): Mismatch | null {
  if (from === 'any' || to === 'any' || from === to) return null
  if (from === 'integer' && to === 'number') return null
  if (typeof from === 'string' || typeof to === 'string') return differ(from, to)
  if ('list' in from && 'list' in to) return mismatchOf(from.list, to.list)
  if ('list' in from || 'list' in to) return differ(from, to)
  if ('object' in to) return mismatchOfObject(from, to)
  return firstOf(inner(from), ([name, type]) => within(name, mismatchOf(type, to.map)))
}

function mismatchOfObject(from: { map: Type } | ObjectType, to: ObjectType): Mismatch | null {
  if ('map' in from) return firstOf(inner(to), ([name, type]) => within(name, mismatchOf(from.map, type)))
  const missing = to.required.find((name) => !Object.hasOwn(from.object, name))
  if (missing !== undefined) return { path: [missing], message: 'is required' }
  return firstOf(inner(from), ([name, type]) => {
    const wanted = Object.hasOwn(to.object, name) ? to.object[name] : undefined
    return wanted === undefined
      ? { path: [name], message: 'is not a known field' }
      : within(name, mismatchOf(type, wanted))
  })
}

const inner = (type: { map: Type } | ObjectType): [string, Type][] =>
  'map' in type ? [['*', type.map]] : Object.entries(type.object)

const differ = (from: Type, to: Type): Mismatch => ({
  path: [],
  message: `must be ${named(to)}, and is ${named(from)}`,
})

const within = (name: string, found: Mismatch | null): Mismatch | null =>
  found && { ...found, path: [name, ...found.path] }

function firstOf<T>(items: readonly T[], find: (item: T) => Mismatch | null): Mismatch | null {
  for (const item of items) {
    const found = find(item)
    if (found) return found
  }
  return null
}

/** For messages: `list<string>`. */
export function named(type: Type): string {
  if (typeof type === 'string') return type
  if ('list' in type) return `list<${named(type.list)}>`
  return 'map' in type ? `map<${named(type.map)}>` : 'object'
}

/** Whether it is made of more types than that. Takes no longer if it is made of very many. */
export function isLargerThan(type: Type, most: number): boolean {
  let left = most
  const count = (part: Type): boolean => {
    if (left-- <= 0) return true
    if (typeof part === 'string') return false
    if ('list' in part) return count(part.list)
    return 'map' in part ? count(part.map) : Object.values(part.object).some(count)
  }
  return count(type)
}

/** A value of values of values may have a type of any size: `any` stands for a large one. */
export const bounded = (type: Type): Type => (isLargerThan(type, bounds.types) ? 'any' : type)

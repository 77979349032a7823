import { evaluationBounds } from './bounds.ts'
import { isObjectType, type Type } from './types.ts'

// JSON becomes values of CEL by its type, and back. JSON has one kind of number, and CEL has two: a whole number is an
// `int` (a bigint) where its type says so, and a `double` elsewhere.

/** The result has no JSON, or is larger than a node's output. */
export class NoJson extends Error {
  override readonly name = 'NoJson'
  readonly isTooLarge: boolean

  constructor(message: string, isTooLarge = false) {
    super(message)
    this.isTooLarge = isTooLarge
  }
}

/** An object with declared fields. They become values when an expression asks for them. */
export class Message extends Map<string, unknown> {
  readonly source: Record<string, unknown>
  readonly #declared: Declared

  constructor(source: Record<string, unknown>, declared: Declared) {
    super()
    this.source = source
    this.#declared = declared
  }

  override get(name: string): unknown {
    if (!super.has(name) && this.has(name)) {
      this.set(name, this.#declared.toValue(name, this.source[name]))
    }
    return super.get(name)
  }

  override has(name: string): boolean {
    return this.#declared.names.has(name) && Object.hasOwn(this.source, name)
  }

  /** Asked for after dyn(). */
  override keys(): MapIterator<string> {
    for (const name of this.#declared.names) this.get(name)
    return super.keys()
  }
}

export interface Declared {
  names: ReadonlySet<string>
  toValue: (name: string, value: unknown) => unknown
}

export type MakeMessage = (type: Type, source: Record<string, unknown>) => Message

/** Reads the JSON of values. The library takes an object with a field `constructor` for one of an unknown class. */
export const readJson = (text: string): unknown =>
  JSON.parse(text, text.includes('"constructor"') ? constructorAsMap : undefined)

const constructorAsMap = (_: string, value: unknown): unknown =>
  typeof value === 'object' && value !== null && Object.hasOwn(value, 'constructor')
    ? new Map(Object.entries(value))
    : value

/** The value of CEL for JSON. What does not fit its type stays as it is, and CEL says so if it is used. */
export function toCel(value: unknown, type: Type, make: MakeMessage): unknown {
  if (type === 'integer') return Number.isSafeInteger(value) ? BigInt(value as number) : value
  if (typeof type === 'string' || typeof value !== 'object' || value === null || !isConverted(type))
    return value
  if ('list' in type) {
    return Array.isArray(value) ? value.map((item) => toCel(item, type.list, make)) : value
  }
  if (Array.isArray(value)) return value
  if (value instanceof Map) return toCel(Object.fromEntries(value), type, make)
  if (isObjectType(type)) return make(type, value as Record<string, unknown>)
  const entries = Object.entries(value).map(([name, inner]) => [name, toCel(inner, type.map, make)] as const)
  return Object.fromEntries(entries)
}

/** Long lists of texts are passed as they are. */
function isConverted(type: Type): boolean {
  if (typeof type === 'string') return type === 'integer'
  if ('list' in type) return isConverted(type.list)
  return 'map' in type ? isConverted(type.map) : true
}

/** What the JSON of a result may still have. A small value can have an endless JSON: lists within lists. */
export interface Room {
  values: number
  characters: number
}

export const newRoom = (): Room => ({
  values: evaluationBounds.outputValues,
  characters: evaluationBounds.outputBytes,
})

/** Throws NoJson. */
export function takeCharacters(room: Room, text: string): void {
  room.characters -= text.length
  if (room.characters < 0) throw tooLarge()
}

const tooLarge = () => new NoJson('The value is larger than a node’s output', true)

/** The JSON of a value of CEL. Throws NoJson. */
export function toJson(value: unknown, room: Room): unknown {
  if (room.values-- <= 0) throw tooLarge()
  switch (typeof value) {
    case 'string':
      takeCharacters(room, value)
      return value
    case 'boolean':
      return value
    case 'number':
      if (Number.isFinite(value)) return value
      throw new NoJson(`${value} is not JSON`)
    case 'bigint':
      if (Number.isSafeInteger(Number(value))) return Number(value)
      throw new NoJson(`${value} is larger than JSON's whole numbers: use string()`)
    default:
      return objectToJson(value, room)
  }
}

function objectToJson(value: unknown, room: Room): unknown {
  if (value === null) return null
  if (value instanceof Message) return toJson(value.source, room)
  if (value instanceof Date) return value.toISOString()
  if (Array.isArray(value)) return listToJson(value, room)
  if (value instanceof Map) {
    return recordToJson(Object.fromEntries([...value].map(([name, inner]) => [String(name), inner])), room)
  }
  if (typeof value === 'object' && Object.getPrototypeOf(value) === Object.prototype) {
    return recordToJson(value as Record<string, unknown>, room)
  }
  throw new NoJson('The value has a type that JSON does not have')
}

// What is JSON already is not copied: a node may pass on eight megabytes.

function listToJson(list: unknown[], room: Room): unknown[] {
  let copy: unknown[] | null = null
  for (const [at, item] of list.entries()) {
    const json = toJson(item, room)
    if (json === item) continue
    copy ??= [...list]
    copy[at] = json
  }
  return copy ?? list
}

function recordToJson(record: Record<string, unknown>, room: Room): unknown {
  let changed: Map<string, unknown> | null = null
  for (const name of Object.keys(record)) {
    takeCharacters(room, name)
    const json = toJson(record[name], room)
    if (json !== record[name]) changed = (changed ?? new Map(Object.entries(record))).set(name, json)
  }
  return changed ? Object.fromEntries(changed) : record
}

import { DocumentRefused } from '../document-errors.ts'
import { cuts, type Piece } from './pieces.ts'
import { decodeText } from './text.ts'

// Values of a JSON document, one a line: `address.city: Paris`. What is in one list's element stays together if it fits.

type Json = null | boolean | number | string | Json[] | { [key: string]: Json }

/** A list of values is one line if it is short. */
const mostInLine = 200
/** A chunk's place is two pointers, of which the store takes 4,096 characters of JSON together. A longer one ends early. */
const longestPointer = 1_000

/** Throws DocumentRefused. */
export function* jsonPieces(bytes: Uint8Array, depth: number): Generator<Piece> {
  const text = decodeText('json', bytes)
  if (!text.trim()) return
  checkDepth(text, depth)
  yield* new Walk().pieces(parsed(text), [], { text: '', isWhole: true })
}

/** Before parsing, so that neither the parser nor the walk meets more. */
function checkDepth(text: string, most: number): void {
  let depth = 0
  let isString = false
  for (let at = 0; at < text.length; at++) {
    const code = text.charCodeAt(at)
    if (isString) {
      if (code === 0x5c) at++
      else if (code === 0x22) isString = false
    } else if (code === 0x22) isString = true
    else if (code === 0x5b || code === 0x7b) {
      if (++depth > most)
        throw new DocumentRefused(
          'too_deep',
          `The document has objects and lists nested more than ${most} deep`,
        )
    } else if (code === 0x5d || code === 0x7d) depth--
  }
}

function parsed(text: string): Json {
  try {
    return JSON.parse(text) as Json
  } catch (error) {
    if (!(error instanceof SyntaxError)) throw error
    // The message has a part of the document too, which is left out.
    const at = /\(line \d+ column \d+\)/.exec(error.message)?.[0] ?? ''
    const isCut = /Unexpected end|Unterminated/.test(error.message)
    throw new DocumentRefused(
      'wrong_type',
      `The document is not valid JSON${isCut ? ': its end is missing' : ''} ${at}`.trimEnd(),
      { cause: error },
    )
  }
}

const isObject = (value: Json): value is { [key: string]: Json } =>
  typeof value === 'object' && value !== null && !Array.isArray(value)
const isContainer = (value: Json): boolean => typeof value === 'object' && value !== null

interface Pointer {
  text: string
  /** False: it is that of a container further out. */
  isWhole: boolean
}

class Walk {
  /** The depth of the container that was entered or left since the last piece; the outermost counts. */
  #edge = Number.POSITIVE_INFINITY
  #headings: { path: string; keys: string[] } = { path: '', keys: [] }

  #piece(text: string, path: (string | number)[], pointer: Pointer): Piece {
    const { headings, name } = this.#names(path)
    // The edge of an outer container is a better end of a chunk than that of an inner one.
    const cut = Number.isFinite(this.#edge) ? cuts.record + 1 / this.#edge : cuts.line
    this.#edge = Number.POSITIVE_INFINITY
    return {
      text: name ? `${name}: ${text}` : text,
      locator: { pointer: pointer.text, last_pointer: pointer.text },
      headings,
      header: null,
      join: '\n',
      cut,
    }
  }

  /** `path`: keys, and indexes as numbers. */
  *pieces(value: Json, path: (string | number)[], pointer: Pointer): Generator<Piece> {
    if (Array.isArray(value)) yield* this.#list(value, path, pointer)
    else if (isObject(value))
      for (const [key, inner] of Object.entries(value)) yield* this.#inner(inner, [...path, key], pointer)
    else if (value !== null && value !== '') yield this.#piece(String(value), path, pointer)
  }

  *#list(values: Json[], path: (string | number)[], pointer: Pointer): Generator<Piece> {
    const line = values.some(isContainer) ? null : inLine(values)
    if (line !== null) {
      if (line) yield this.#piece(line, path, pointer)
      return
    }
    for (const [index, inner] of values.entries()) yield* this.#inner(inner, [...path, index], pointer)
  }

  *#inner(value: Json, path: (string | number)[], parent: Pointer): Generator<Piece> {
    const depth = path.length
    if (isContainer(value)) this.#edge = Math.min(this.#edge, depth)
    yield* this.pieces(value, path, pointerTo(parent, path.at(-1) as string | number))
    if (isContainer(value)) this.#edge = Math.min(this.#edge, depth)
  }

  /** The way to the first list, or the first key, is the heading; the rest names the value. */
  #names(path: (string | number)[]): { headings: readonly string[]; name: string } {
    const index = path.findIndex((part) => typeof part === 'number')
    const above = index === -1 ? path.slice(0, Math.min(1, path.length - 1)) : path.slice(0, index)
    const key = above.join('\0')
    // The same list for all values below it: two pieces with the same headings are told by it at once.
    if (key !== this.#headings.path || above.length !== this.#headings.keys.length)
      this.#headings = { path: key, keys: above.map(String) }
    const rest = path.slice(index === -1 ? above.length : index + 1)
    return { headings: this.#headings.keys, name: rest.join('.') }
  }
}

/** Null: too long for one line. */
function inLine(values: Json[]): string | null {
  let line = ''
  for (const value of values) {
    if (value === null || value === '' || typeof value === 'object') continue
    line += (line && ', ') + String(value)
    if (line.length > mostInLine) return null
  }
  return line
}

function pointerTo(parent: Pointer, part: string | number): Pointer {
  const text = `${parent.text}/${String(part).replaceAll('~', '~0').replaceAll('/', '~1')}`
  return parent.isWhole && JSON.stringify(text).length <= longestPointer
    ? { text, isWhole: true }
    : { text: parent.text, isWhole: false }
}

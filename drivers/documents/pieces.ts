import type { Locator } from '../documents.ts'

// What extractors make of a document and chunks are packed from.

/** How good a place for the end of a chunk is. A higher one is taken before any lower one. */
export const cuts = { word: 0, line: 1, sentence: 2, paragraph: 3, record: 4 } as const

/** A part of a document that is best kept whole: a paragraph, a line of code, a row. */
export interface Piece {
  text: string
  locator: Locator
  /** The outermost first. Pieces under other headings are not in the same chunk. */
  headings: readonly string[]
  /** The header of the table of which this is a row; each chunk of its rows has it. */
  header: string | null
  /** Between this piece and the one before, in the same chunk. */
  join: '\n\n' | '\n' | ' ' | ''
  /** How good a cut before this piece is: one of `cuts`, or between. */
  cut: number
}

export type Pieces = Iterable<Piece> | AsyncIterable<Piece>

const isParagraph = { join: '\n\n', cut: cuts.paragraph } as const
const isLine = { join: '\n', cut: cuts.line } as const

/** The headings above the place that is being read. A heading with nothing below it becomes a piece itself. */
export class Outline {
  #open: { level: number; text: string; locator: Locator }[] = []
  #isUsed = true
  #path: readonly string[] = []

  paragraph(text: string, locator: Locator, header: string | null = null): Piece {
    return this.#piece({ text, locator, header, ...isParagraph })
  }

  line(text: string, locator: Locator, header: string | null = null): Piece {
    return this.#piece({ text, locator, header, ...isLine })
  }

  /** A heading of a level, 1 being the outermost. */
  *heading(level: number, text: string, locator: Locator): Generator<Piece> {
    const parent = this.#open.at(-1)
    if (parent && parent.level >= level) yield* this.end()
    this.#open = this.#open.filter((open) => open.level < level)
    this.#open.push({ level, text, locator })
    this.#path = this.#open.map((open) => open.text)
    this.#isUsed = false
  }

  /** The last heading, if nothing was below it. */
  *end(): Generator<Piece> {
    const last = this.#open.at(-1)
    if (this.#isUsed || !last) return
    this.#isUsed = true
    const { text, locator } = last
    yield { text, locator, headings: this.#path.slice(0, -1), header: null, ...isParagraph }
  }

  #piece(piece: Omit<Piece, 'headings'>): Piece {
    this.#isUsed = true
    return { ...piece, headings: this.#path }
  }
}

/** From the first to the last place. Both are of one document, and so of one kind. */
export function span(first: Locator, last: Locator): Locator {
  if ('page' in first && 'page' in last) return { page: first.page, last_page: last.last_page }
  if ('line' in first && 'line' in last) return { line: first.line, last_line: last.last_line }
  if ('pointer' in first && 'pointer' in last)
    return { pointer: first.pointer, last_pointer: last.last_pointer }
  throw new TypeError('the places are of different kinds')
}

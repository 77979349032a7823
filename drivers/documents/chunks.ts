import { createHash } from 'node:crypto'
import type { DocumentChunk, Tokenizer } from '../documents.ts'
import { DocumentRefused } from '../document-errors.ts'
import { cuts, type Piece, type Pieces, span } from './pieces.ts'
import { mostCharacters, partsOf } from './split.ts'

// Packs the pieces of a document into chunks. In front of each are headings and a table's header, and the last sentence of the
// chunk before. A chunk ends where the text says so, not where its number of tokens does: after a change in the middle,
// the chunks behind it are the same again after a few, and have the same hashes.

export interface ChunkLimits {
  tokens: number
  chunks: number
}

/** A chunk that could be longer usually has this part of its tokens. The rest is the room in which a cut is looked for. */
const usuallyFilled = 0.5
/** One for which there would be no choice otherwise. */
const leastFilled = 0.25
/** What headings and header may take of a chunk's tokens. */
const mostOfPrefix = 0.4
/** What is repeated of the chunk before may take this, unless that is too little for a sentence. */
const mostOfOverlap = 0.15
const leastOverlapTokens = 16
/** The place of a chunk is in the store with it, which takes 4,096 characters for all of it. */
const headingCharacters = 200
const mostHeadings = 8

interface Packed extends Piece {
  tokens: number
}

interface End {
  /** How many pieces. */
  end: number
  /** The last piece. */
  text: string
  tokens: number
  cut: number
}

/** Throws DocumentRefused if there is no text, or too many chunks. */
export async function* chunksOf(
  pieces: Pieces,
  tokenizer: Tokenizer,
  limits: ChunkLimits,
): AsyncGenerator<DocumentChunk> {
  let count = 0
  for await (const chunk of packed(pieces, tokenizer, limits.tokens)) {
    if (++count > limits.chunks)
      throw new DocumentRefused(
        'too_large',
        `The document has more than ${limits.chunks} chunks of ${limits.tokens} tokens: divide it`,
        { stage: 'chunking' },
      )
    yield chunk
  }
  if (count === 0) throw new DocumentRefused('empty', 'The document has no text')
}

async function* packed(pieces: Pieces, tokenizer: Tokenizer, most: number): AsyncGenerator<DocumentChunk> {
  let packer: Packer | null = null
  for await (const piece of pieces) {
    if (!packer?.takes(piece)) {
      if (packer) yield* packer.rest()
      packer = new Packer(piece, tokenizer, most)
    }
    yield* packer.add(piece)
  }
  if (packer) yield* packer.rest()
}

/** Pieces under the same headings and header. */
class Packer {
  /** As the pieces have them. */
  readonly #of: Pick<Piece, 'headings' | 'header'>
  readonly #headings: readonly string[]
  readonly #header: string | null
  readonly #prefix: string
  readonly #tokenizer: Tokenizer
  readonly #most: number
  /** Tokens for what is repeated of the chunk before. */
  readonly #overlap: number
  /** For a chunk's own text. */
  readonly #budget: number
  /** The end of the chunk before. */
  #tail = ''
  #pending: Packed[] = []
  #tokens = 0
  #characters = 0

  constructor({ headings, header }: Piece, tokenizer: Tokenizer, most: number) {
    this.#of = { headings, header }
    this.#headings = headings.map(clean)
    this.#header = header && clean(header)
    this.#tokenizer = tokenizer
    this.#most = most
    this.#prefix = this.#makePrefix()
    const overlap = Math.floor(most * mostOfOverlap)
    // A row says all by itself.
    this.#overlap = header === null && overlap >= leastOverlapTokens ? overlap : 0
    this.#budget = most - this.#overlap - (this.#prefix ? tokenizer.countTokens(this.#prefix) : 0)
  }

  takes({ headings, header }: Piece): boolean {
    const own = this.#of
    return (
      header === own.header &&
      (headings === own.headings ||
        (headings.length === own.headings.length &&
          headings.every((heading, index) => heading === own.headings[index])))
    )
  }

  *add(piece: Piece): Generator<DocumentChunk> {
    const text = clean(piece.text).trimEnd()
    if (!text.trim()) return
    let isFirst = true
    for (const part of partsOf(text, this.#budget, this.#tokenizer)) {
      const own = isFirst ? piece : { join: part.isSpaced ? (' ' as const) : ('' as const), cut: part.cut }
      isFirst = false
      this.#pending.push({ ...piece, ...own, text: part.text, tokens: part.tokens })
      this.#tokens += part.tokens
      this.#characters += part.text.length
      while (this.#isOver()) yield this.#take(this.#endOfChunk())
    }
  }

  *rest(): Generator<DocumentChunk> {
    while (this.#pending.length > 0) yield this.#take(this.#pending.length)
  }

  #isOver(): boolean {
    return (
      this.#pending.length > 1 &&
      (this.#tokens > this.#budget || this.#characters > mostCharacters(this.#budget))
    )
  }

  /**
   * How many pieces the next chunk has: up to the best cut in the second half of what fits. Among equals the text of the
   * piece before decides, which stays the same when something is inserted elsewhere. There have to be two for that: with
   * only one, chunks of equal paragraphs would all move by one after an insertion. The other is then a shorter chunk.
   */
  #endOfChunk(): number {
    const ends = this.#ends()
    const filled = ends.filter(({ tokens }) => tokens >= this.#budget * usuallyFilled)
    if (filled.length === 0) return ends.at(-1)?.end ?? 1
    const best = Math.max(...filled.map(({ cut }) => cut))
    const equals = (least: number) =>
      ends.filter(({ cut, tokens }) => cut === best && tokens >= this.#budget * least)
    const usual = equals(usuallyFilled)
    const draws = usual.length > 1 ? usual : equals(leastFilled)
    return draws
      .map(({ end, text }) => ({ end, draw: digest(text) }))
      .reduce((least, one) => (one.draw <= least.draw ? one : least)).end
  }

  /** Where the next chunk may end. */
  #ends(): End[] {
    const ends: End[] = []
    let tokens = 0
    for (let end = 1; end < this.#pending.length; end++) {
      const before = this.#pending[end - 1] as Packed
      tokens += before.tokens
      if (tokens > this.#budget) break
      const cut = strength(before, this.#pending[end] as Packed)
      ends.push({ end, tokens, cut, text: before.text })
    }
    return ends
  }

  /** A chunk of the first `count` pieces, or of fewer if together they have more tokens than each for itself. */
  #take(count: number): DocumentChunk {
    let taken = this.#pending.slice(0, count)
    const first = taken[0] as Packed
    let overlap = this.#tail && first.cut < cuts.record ? this.#tail + first.join : ''
    let text = this.#prefix + overlap + joined(taken)
    let tokens = this.#tokenizer.countTokens(text)
    while (tokens > this.#most && (taken.length > 1 || overlap)) {
      if (taken.length > 1) taken = taken.slice(0, -1)
      else overlap = ''
      text = this.#prefix + overlap + joined(taken)
      tokens = this.#tokenizer.countTokens(text)
    }
    this.#pending.splice(0, taken.length)
    this.#tokens = this.#pending.reduce((sum, piece) => sum + piece.tokens, 0)
    this.#characters = this.#pending.reduce((sum, piece) => sum + piece.text.length, 0)
    const last = taken.at(-1) ?? first
    this.#tail = this.#endOf(last.text)
    return {
      hash: digest(text),
      text,
      prefix: this.#prefix.length,
      overlap: overlap.length,
      headings: this.#headings
        .slice(-mostHeadings)
        .map((heading) => heading.slice(0, headingCharacters).toWellFormed()),
      locator: span(first.locator, last.locator),
      tokens,
    }
  }

  /** Headings, the innermost kept first, and the header, each within its share. */
  #makePrefix(): string {
    const share = Math.floor(this.#most * mostOfPrefix)
    const header = this.#header ? this.#fitting(this.#header, share) : ''
    let room = share - (header ? this.#tokenizer.countTokens(header) : 0)
    const kept: string[] = []
    for (const heading of this.#headings.toReversed()) {
      if (room < 4) break
      const text = this.#fitting(heading, room)
      kept.unshift(text)
      room -= this.#tokenizer.countTokens(text) + 1
      if (text !== heading) break
    }
    const path = kept.join(' › ')
    return (path ? `${path}\n\n` : '') + (header ? `${header}\n` : '')
  }

  /** The last sentence, or as many of its words as may be repeated; or all of a text that is no longer. */
  #endOf(text: string): string {
    if (this.#overlap === 0) return ''
    let end = ''
    for (const part of partsOf(text, this.#overlap, this.#tokenizer)) end = part.text
    return end
  }

  #fitting(text: string, tokens: number): string {
    for (const part of partsOf(text, Math.max(1, tokens), this.#tokenizer)) return part.text
    return ''
  }
}

/** Lines end anywhere; the end of a sentence is a better place. */
const strength = (before: Packed, next: Packed): number =>
  next.cut === cuts.line && /[.!?:;。！？]["'”’)\]]*$/u.test(before.text) ? cuts.sentence : next.cut

/** JSON may have null characters, which end a text for some programs, and halves of characters, which have no UTF-8. */
const clean = (text: string): string => text.toWellFormed().replaceAll('\0', ' ')

const joined = (pieces: Packed[]): string =>
  pieces.map((piece, index) => (index === 0 ? piece.text : piece.join + piece.text)).join('')

const digest = (text: string): string => createHash('sha256').update(text).digest('hex')

import { createHash } from 'node:crypto'
import type { DocumentChunk, Tokenizer } from '../documents.ts'
import { DocumentRefused } from '../errors.ts'
import { cuts, type Piece, type Pieces, span } from './pieces.ts'
import { mostCharacters, partsOf } from './split.ts'

// Packs the pieces of a document into chunks. Headings and a table's header are in front of each. A chunk ends where the
// text says so, not where its number of tokens does: after a change in the middle, the chunks behind it are the same
// again after a few, and have the same hashes.

export interface ChunkLimits {
  tokens: number
  chunks: number
}

/** A chunk that could be longer has at least this part of its tokens. The rest is the room in which a cut is looked for. */
const leastFilled = 0.5
/** What headings and header may take of a chunk's tokens. */
const mostOfPrefix = 0.4
/** The place of a chunk is in the store with it, which takes 4,096 characters for all of it. */
const headingCharacters = 200
const mostHeadings = 8

interface Packed extends Piece {
  tokens: number
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
  readonly #headings: readonly string[]
  readonly #header: string | null
  readonly #prefix: string
  readonly #tokenizer: Tokenizer
  readonly #most: number
  /** For a chunk's own text. */
  readonly #budget: number
  #pending: Packed[] = []
  #tokens = 0
  #characters = 0

  constructor({ headings, header }: Piece, tokenizer: Tokenizer, most: number) {
    this.#headings = headings
    this.#header = header
    this.#tokenizer = tokenizer
    this.#most = most
    this.#prefix = this.#makePrefix()
    this.#budget = most - (this.#prefix ? tokenizer.countTokens(this.#prefix) : 0)
  }

  takes({ headings, header }: Piece): boolean {
    return (
      header === this.#header &&
      (headings === this.#headings ||
        (headings.length === this.#headings.length &&
          headings.every((heading, index) => heading === this.#headings[index])))
    )
  }

  *add(piece: Piece): Generator<DocumentChunk> {
    const text = piece.text.trimEnd()
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
   * piece before decides, which stays the same when something is inserted elsewhere.
   */
  #endOfChunk(): number {
    let best = 1
    let bestCut = -1
    let bestDraw = ''
    let tokens = 0
    for (let end = 1; end < this.#pending.length; end++) {
      const before = this.#pending[end - 1] as Packed
      const next = this.#pending[end] as Packed
      tokens += before.tokens
      if (tokens > this.#budget) break
      const cut = strength(before, next)
      const isFilled = tokens >= this.#budget * leastFilled
      if (!isFilled) {
        best = end
        continue
      }
      if (cut < bestCut) continue
      const draw = digest(before.text)
      if (cut > bestCut || draw <= bestDraw) {
        best = end
        bestCut = cut
        bestDraw = draw
      }
    }
    return best
  }

  /** A chunk of the first `count` pieces, or of fewer if together they have more tokens than each for itself. */
  #take(count: number): DocumentChunk {
    let taken = this.#pending.slice(0, count)
    let text = this.#prefix + joined(taken)
    let tokens = this.#tokenizer.countTokens(text)
    while (tokens > this.#most && taken.length > 1) {
      taken = taken.slice(0, -1)
      text = this.#prefix + joined(taken)
      tokens = this.#tokenizer.countTokens(text)
    }
    this.#pending.splice(0, taken.length)
    this.#tokens = this.#pending.reduce((sum, piece) => sum + piece.tokens, 0)
    this.#characters = this.#pending.reduce((sum, piece) => sum + piece.text.length, 0)
    const first = taken[0] as Packed
    return {
      hash: digest(text),
      text,
      prefix: this.#prefix.length,
      headings: this.#headings.slice(-mostHeadings).map((heading) => heading.slice(0, headingCharacters)),
      locator: span(first.locator, (taken.at(-1) ?? first).locator),
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

  #fitting(text: string, tokens: number): string {
    for (const part of partsOf(text, Math.max(1, tokens), this.#tokenizer)) return part.text
    return ''
  }
}

/** Lines end anywhere; the end of a sentence is a better place. */
const strength = (before: Packed, next: Packed): number =>
  next.cut === cuts.line && /[.!?:;。！？]["'”’)\]]*$/u.test(before.text) ? cuts.sentence : next.cut

const joined = (pieces: Packed[]): string =>
  pieces.map((piece, index) => (index === 0 ? piece.text : piece.join + piece.text)).join('')

const digest = (text: string): string => createHash('sha256').update(text).digest('hex')

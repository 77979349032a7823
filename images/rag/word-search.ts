import type { DatabaseSync, StatementSync } from 'node:sqlite'
import type { Allowed, Mirror } from './mirror.ts'
import { bestAbove0, type Scored } from './top.ts'
import { matchAny, tellingWords, wordsOf } from './words.ts'

/** BM25 gives a word in more chunks than these a weight of almost 0. */
const frequentShare = 0.5
/** Fewer are scored in no time. */
const frequentFrom = 1_000
/** How many chunks of words a search scores, the rarest words first. FTS5 takes 1 to 2 µs for each. */
const mostScored = 200_000
/** Of all words together: 8 bytes for each chunk of a word. */
const mostKept = 4_000_000

/** A word, and its BM25 in each chunk that has it, once it has been asked for. */
interface Word {
  match: string
  chunks: number
  slots: Uint32Array | null
  scores: Float32Array | null
}

/**
 * Full text of a collection by BM25. A chunk's BM25 is the sum of that of its words. FTS5 looks up the size of each chunk
 * anew for each query, which makes frequent words slow; so a word's scores are kept until the collection changes.
 */
export class WordSearch {
  readonly #mirror: Mirror
  readonly #count: StatementSync
  readonly #score: StatementSync
  readonly #kept = new Map<string, Word>()
  #keptChunks = 0
  #generation = 0

  constructor(database: DatabaseSync, mirror: Mirror) {
    this.#mirror = mirror
    this.#count = database.prepare('SELECT count(*) FROM words WHERE words MATCH ?')
    this.#score = database.prepare('SELECT rowid, bm25(words) FROM words WHERE words MATCH ?')
    for (const statement of [this.#count, this.#score]) statement.setReturnArrays(true)
  }

  /** The best chunks with any of the text's words: their slots and BM25, best first. */
  search(text: string, allowed: Allowed | null, depth: number): Scored[] {
    this.#forgetOld()
    const sums = new Float32Array(this.#mirror.chunks)
    for (const word of this.#rarest(tellingWords(wordsOf(text)))) {
      const { slots, scores } = this.#scoresOf(word)
      for (let index = 0; index < slots.length; index++) {
        const slot = slots[index] as number
        sums[slot] = (sums[slot] as number) + (scores[index] as number)
      }
    }
    if (allowed) for (let slot = 0; slot < sums.length; slot++) if (allowed[slot] === 0) sums[slot] = 0
    return bestAbove0(sums, depth)
  }

  /** Slots are of one generation, and each change moves the weights of all words a little. */
  #forgetOld(): void {
    if (this.#generation === this.#mirror.generation && this.#keptChunks < mostKept) return
    this.#kept.clear()
    this.#keptChunks = 0
    this.#generation = this.#mirror.generation
  }

  /** The words that are not too frequent, rarest first, as many as may be scored; at least one, if any chunk has it. */
  #rarest(words: string[]): Word[] {
    const found = words.map((word) => this.#wordOf(word)).filter(({ chunks }) => chunks > 0)
    const sorted = found.toSorted((a, b) => a.chunks - b.chunks)
    const most = Math.max(frequentFrom, this.#mirror.chunks * frequentShare)
    let scored = 0
    return sorted.filter(({ chunks }, index) => {
      scored += chunks
      return index === 0 || (chunks <= most && scored <= mostScored)
    })
  }

  #wordOf(text: string): Word {
    const kept = this.#kept.get(text)
    if (kept) return kept
    const match = matchAny([text])
    const [chunks] = this.#count.get(match) as unknown as [number]
    const word: Word = { match, chunks, slots: null, scores: null }
    this.#kept.set(text, word)
    this.#keptChunks++
    return word
  }

  #scoresOf(word: Word): { slots: Uint32Array; scores: Float32Array } {
    if (!word.slots || !word.scores) {
      const rows = this.#score.all(word.match) as unknown as [id: number, score: number][]
      word.slots = Uint32Array.from(rows, ([id]) => this.#mirror.slotOf(id))
      // FTS5 gives the best the least score, below 0.
      word.scores = Float32Array.from(rows, ([, score]) => -score)
      this.#keptChunks += rows.length
    }
    return { slots: word.slots, scores: word.scores }
  }
}

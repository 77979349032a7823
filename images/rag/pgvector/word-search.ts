import type { Scored } from '../top.ts'
import type { Allowed } from './filter.ts'
import { type Collection, schemaOf } from './schema.ts'
import type { Session } from './sessions.ts'
import { queryWords } from './words.ts'

/** BM25 gives a word in more chunks than these a weight of almost 0. */
const frequentShare = 0.5
/** Fewer are scored in no time. */
const frequentFrom = 1_000
/** How many chunks a search scores: those with the rarest words. Each takes some 10 µs. */
const mostScored = 10_000
/** How many words' numbers of chunks are kept. */
const mostKept = 50_000
/** So much the collection may grow or shrink before words are counted anew. */
const mostChange = 0.02
// The usual constants of BM25.
const k1 = 1.2
const b = 0.75

/**
 * How often a chunk has a word, from PostgreSQL's rank: for one word that is 1 + 1/4 + 1/9 … for each time, divided by pi² / 6.
 * The bounds are in the middle between two such sums.
 */
const sumOfRank = Math.PI ** 2 / 6
const bounds = timesBounds(12)
function timesBounds(most: number): number[] {
  let sum = 0
  return Array.from({ length: most }, (_, index) => {
    const before = sum
    sum += 1 / (index + 1) ** 2
    return (before + sum) / 2
  })
}

interface Word {
  /** A query of PostgreSQL for its stem. */
  query: string
  /** How many chunks have it, if not more than are worth counting. */
  chunks: number
}

/** Full text of a collection by BM25, which PostgreSQL itself does not have. */
export class WordSearch {
  readonly #kept = new Map<string, Word | null>()
  #countedAt = 0

  /** The best chunks with any of the text's words: their numbers and BM25, best first. */
  async search(
    session: Session,
    collection: Collection,
    text: string,
    allowed: Allowed | null,
    depth: number,
  ): Promise<Scored[]> {
    const { chunks } = collection
    if (Math.abs(chunks - this.#countedAt) > mostChange * this.#countedAt || this.#kept.size > mostKept) {
      this.#kept.clear()
      this.#countedAt = chunks
    }
    const all = await this.#wordsOf(session, collection, queryWords(text))
    const telling = all.filter(({ chunks: its }, index) => index === 0 || its <= mostOf(chunks))
    if (!telling.length) return []
    let scored = 0
    const looked = telling.filter(({ chunks: its }, index) => {
      scored += its
      return index === 0 || scored <= mostScored
    })
    const values: unknown[] = [
      looked.map(({ query }) => query).join(' | '),
      Math.max(1, collection.words / Math.max(1, chunks)),
      bounds,
      depth,
      ...(allowed ? [allowed.documents] : []),
    ]
    const parameter = (value: unknown): string => `$${values.push(value)}`
    // In one expression: with the words as rows, PostgreSQL takes four times as long.
    const weights = telling.map(({ query, chunks: its }) => {
      const times = `width_bucket(ts_rank('{1,1,1,1}', words, ${parameter(query)}::tsquery) * ${sumOfRank}, $3::float8[])`
      const weight = Math.log(1 + (chunks - its + 0.5) / (its + 0.5)) * (k1 + 1)
      return `${parameter(weight)}::float8 * (1 - half / (${times} + half))`
    })
    return session.run<Scored>(
      `SELECT id AS slot, ${weights.join(' + ')} AS score
       FROM (
         SELECT id, words, ${k1} * (${1 - b} + ${b} * length / $2::float8) AS half FROM ${schemaOf(collection)}.chunks
         WHERE words @@ $1::tsquery ${allowed ? 'AND document = ANY ($5::bigint[])' : ''}
       ) AS found
       ORDER BY score DESC, id LIMIT $4`,
      values,
    )
  }

  /** Those that any chunk has, the rarest first. */
  async #wordsOf(session: Session, collection: Collection, words: string[]): Promise<Word[]> {
    const missing = words.filter((word) => !this.#kept.has(word))
    if (missing.length) {
      const found = await session.run<{ word: string; query: string; chunks: number }>(
        `SELECT word, query, (
           SELECT count(*) FROM (
             SELECT FROM ${schemaOf(collection)}.chunks WHERE words @@ query::tsquery LIMIT $2
           ) AS its
         ) AS chunks
         FROM unnest($1::text[]) AS word, LATERAL (SELECT plainto_tsquery('public.words', word)::text AS query) AS stem
         WHERE query <> ''`,
        [missing, mostOf(collection.chunks) + 1],
      )
      const byWord = new Map(found.map((row) => [row.word, row]))
      for (const word of missing) this.#kept.set(word, byWord.get(word) ?? null)
    }
    const known = words.flatMap((word) => this.#kept.get(word) ?? []).filter(({ chunks }) => chunks > 0)
    // Several forms of a word have one stem.
    const byStem = new Map(known.map((word) => [word.query, word]))
    return [...byStem.values()].toSorted((one, other) => one.chunks - other.chunks)
  }
}

const mostOf = (chunks: number): number => Math.max(frequentFrom, Math.floor(chunks * frequentShare))

import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Chunk, Embedder, Metadata, SearchQuery, Store } from '../../../images/rag/store.ts'

// The test collection of the Cranfield experiments (1966): 1,400 abstracts on aerodynamics, and questions with judged answers.

/** Beside the repository: it is not part of it. */
const folder = resolve(
  process.env['KEELSON_CRANFIELD'] ?? join(import.meta.dirname, '../../../../shared/data/cranfield'),
)

/** Why it cannot be measured; null if it can. */
export const lackOfCranfield = (): string | null =>
  existsSync(folder) ? null : `there is no ${folder}: KEELSON_CRANFIELD names another place`

export interface Abstract {
  id: number
  title: string
  text: string
}

interface Question {
  id: number
  text: string
  /** How well a document answers: 1 to 4; those that are not named do not. */
  gains: Record<string, number>
}

const linesOf = (name: string): unknown[] =>
  readFileSync(join(folder, name), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown)

/** Those that have a text: two have none. */
export const abstracts = (): Abstract[] =>
  (linesOf('documents.jsonl') as Abstract[]).filter(({ text }) => text.trim())
export const questions = (): Question[] => linesOf('queries.jsonl') as Question[]

export interface Quality {
  /** 1 if the ten documents were the best ten in the best order. */
  ndcg10: number
  /** The share of the answers that is among the ten documents. */
  recall10: number
}

export interface AbstractChunks extends Abstract {
  metadata: Metadata
  chunks: Chunk[]
}

export async function putAbstracts(
  store: Store,
  collection: string,
  embedder: Embedder,
  documents: AbstractChunks[],
): Promise<void> {
  for (const { id, metadata, chunks } of documents)
    await store.replaceDocument(collection, embedder, { id: String(id), version: 1, metadata, chunks })
}

/** Enough chunks for ten documents. */
const chunksRead = 50

/**
 * The mean over all questions, of the first ten documents among the hits. `ask` makes a search of a question by its place among
 * the questions.
 */
export async function cranfieldQuality(
  store: Store,
  collection: string,
  ask: (text: string, place: number) => Omit<SearchQuery, 'k'>,
): Promise<Quality> {
  const all = questions()
  const sum: Quality = { ndcg10: 0, recall10: 0 }
  for (const [place, { text, gains }] of all.entries()) {
    const { hits } = await store.search(collection, { ...ask(text, place), k: chunksRead })
    const documents = [...new Set(hits.map(({ document_id }) => document_id))].slice(0, 10)
    const found = documents.map((id) => gains[id] ?? 0)
    const ideal = Object.values(gains).toSorted((a, b) => b - a)
    sum.ndcg10 += discounted(found) / discounted(ideal.slice(0, 10))
    sum.recall10 += found.filter((gain) => gain > 0).length / ideal.length
  }
  return { ndcg10: sum.ndcg10 / all.length, recall10: sum.recall10 / all.length }
}

const discounted = (gains: number[]): number =>
  gains.reduce((sum, gain, index) => sum + gain / Math.log2(index + 2), 0)

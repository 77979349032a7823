import { existsSync, readFileSync } from 'node:fs'
import { join, resolve } from 'node:path'
import type { Embedder, SearchQuery, Store } from '../../../images/rag/store.ts'

// The test collection of the Cranfield experiments (1966): 1,400 abstracts on aerodynamics, and questions with judged answers.

/** Beside the repository: it is not part of it. */
const folder = resolve(
  process.env['KEELSON_CRANFIELD'] ?? join(import.meta.dirname, '../../../../shared/data/cranfield'),
)

interface Question {
  id: number
  text: string
  /** How well a document answers: 1 to 4; those that are not named do not. */
  gains: Record<string, number>
}

export const hasCranfield = (): boolean => existsSync(folder)

const linesOf = (name: string): unknown[] =>
  readFileSync(join(folder, name), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as unknown)

export interface Quality {
  /** 1 if the ten hits were the best ten in the best order. */
  ndcg10: number
  /** The share of the answers that is among the ten hits. */
  recall10: number
}

/** Puts the documents into a new collection, each as one chunk: title and text. */
export async function putCranfield(
  store: Store,
  collection: string,
  embedder: Embedder,
  embed: (text: string) => Promise<Float32Array>,
): Promise<void> {
  await store.createCollection(collection, { embedder, metadata_schema: {} })
  const documents = linesOf('documents.jsonl') as { id: number; title: string; text: string }[]
  for (const { id, title, text } of documents) {
    const whole = `${title}\n${text}`
    const chunk = { hash: String(id), text: whole, locator: {}, vector: await embed(whole) }
    await store.replaceDocument(collection, embedder, {
      id: String(id),
      version: 1,
      metadata: {},
      chunks: [chunk],
    })
  }
}

/** The mean over all questions. `ask` makes a search of a question's text. */
export async function cranfieldQuality(
  store: Store,
  collection: string,
  ask: (text: string) => Promise<SearchQuery>,
): Promise<Quality> {
  const questions = linesOf('queries.jsonl') as Question[]
  const sum: Quality = { ndcg10: 0, recall10: 0 }
  for (const { text, gains } of questions) {
    const { hits } = await store.search(collection, { ...(await ask(text)), k: 10 })
    const found = hits.map(({ document_id }) => gains[document_id] ?? 0)
    const ideal = Object.values(gains).toSorted((a, b) => b - a)
    sum.ndcg10 += discounted(found) / discounted(ideal.slice(0, 10))
    sum.recall10 += found.filter((gain) => gain > 0).length / ideal.length
  }
  return { ndcg10: sum.ndcg10 / questions.length, recall10: sum.recall10 / questions.length }
}

const discounted = (gains: number[]): number =>
  gains.reduce((sum, gain, index) => sum + gain / Math.log2(index + 2), 0)

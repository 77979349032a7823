import type { ScorePart } from '../../images/rag/store.ts'
import { ModelFailed, type Embeddings } from './embeddings.ts'

// The second look at the hits of a search, by a model of a connector that reads the question and each text together.

/** Somebody waits for the answer, and has one without it. */
const answersWithinMs = 10_000

export interface Rerank {
  connector_id: string
  model: string
  /** So many of the best hits are ranked. */
  top: number
}

/** How it went. */
export interface RerankReport {
  connector_id: string
  model: string
  /** How many hits were ranked. */
  ranked: number
  /** Why they are in the order of the search. Null: they are ranked. */
  failure: { code: string; reason: string } | null
}

interface Rankable {
  text: string
  context: string
  parts: object
}
export type Reranked<T extends Rankable> = T & { parts: { rerank: ScorePart | null } }

/** The hits in the order of the model; in their own, with the reason, if the model does not rank them in time. */
export async function rerankedBy<T extends Rankable>(
  embeddings: Embeddings,
  { connector_id, model }: Rerank,
  hits: T[],
  { query, tenant_id, collection_id }: { query: string; tenant_id: string; collection_id: string },
  withinMs = answersWithinMs,
): Promise<{ hits: Reranked<T>[]; report: RerankReport }> {
  const by = { connector_id, model }
  if (hits.length === 0) return { hits: [], report: { ...by, ranked: 0, failure: null } }
  try {
    const ranking = await embeddings.rerank(query, hits.map(textOf), {
      ...by,
      tenant_id,
      purpose: { kind: 'collection', id: collection_id },
      signal: AbortSignal.timeout(withinMs),
    })
    const ranked = ranking.map(({ index, score }, place) =>
      withPart(hits[index] as T, { score, rank: place + 1 }),
    )
    return { hits: ranked, report: { ...by, ranked: ranked.length, failure: null } }
  } catch (error) {
    return { hits: hits.map(unranked), report: { ...by, ranked: 0, failure: failureOf(error, withinMs) } }
  }
}

export const unranked = <T extends Rankable>(hit: T): Reranked<T> => withPart(hit, null)

const withPart = <T extends Rankable>(hit: T, rerank: ScorePart | null): Reranked<T> => ({
  ...hit,
  parts: { ...hit.parts, rerank },
})

const textOf = ({ context, text }: Rankable): string => (context ? `${context}\n\n${text}` : text)

/** Throws what is none of the provider's or the model gateway's. */
function failureOf(error: unknown, withinMs: number): NonNullable<RerankReport['failure']> {
  if (error instanceof ModelFailed) return { code: error.code, reason: error.message }
  if (error instanceof DOMException && error.name === 'TimeoutError')
    return { code: 'rerank_timeout', reason: `The model did not answer within ${withinMs / 1000} s` }
  throw error
}

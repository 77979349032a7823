import type { Filter, Hit, SearchQuery } from '../../images/rag/store.ts'
import { collectionNamed, needReady, type RagCollectionDocument } from './collections.ts'
import { RagDocument } from './documents.ts'
import { type CollectionEmbedder, pinned } from './embedders.ts'
import { embed } from './embedding.ts'
import type { Embeddings } from './embeddings.ts'
import { type Place, placeIn } from './places.ts'
import { answered } from './problems.ts'
import { type Rerank, type RerankReport, type Reranked, rerankedBy, unranked } from './rerank.ts'
import { storeAtWork } from './store-condition.ts'
import { StoreError } from './store-rules.ts'

/** Somebody waits for the answer. */
const answersWithinMs = 30_000

export interface Question {
  query: string
  mode: SearchQuery['mode']
  k: number
  filter?: Filter | undefined
  /** Of the search itself, also where hits are ranked anew. */
  min_score?: number | undefined
  rerank?: Rerank | undefined
}

export interface Found extends Place, Pick<Hit, 'version' | 'metadata' | 'position' | 'score' | 'parts'> {
  document: { id: string; name: string }
}

export interface Answer {
  hits: Reranked<Found>[]
  /** Null: none was asked for. */
  rerank: RerankReport | null
}

/**
 * The chunks of a collection that answer the question best. Throws NotFound, StateConflict, InvalidInput, Unavailable, and
 * what the model gateway refuses, but not if only the reranking fails.
 */
export async function search(
  embeddings: Embeddings,
  caller: { tenant_id: string },
  name: string,
  question: Question,
): Promise<Answer> {
  const collection = await collectionNamed(caller, name)
  needReady(collection, 'search the collection')
  const { query, k, min_score, rerank } = question
  const most = Math.max(k, rerank?.top ?? 0)
  const all = await answered(hitsOf(embeddings, collection, { ...question, k: most }))
  const hits = await named(
    collection,
    min_score === undefined ? all : all.filter(({ score }) => score >= min_score),
  )
  if (!rerank) return { hits: hits.map(unranked), rerank: null }
  const { _id: collection_id, tenant_id } = collection
  const ranked = await rerankedBy(embeddings, rerank, hits, { query, tenant_id, collection_id })
  return { hits: ranked.hits.slice(0, k), rerank: ranked.report }
}

/**
 * Asks the store, by the embedder that it has: that of the record or, for the moment until the record says so, the next one.
 * The collection may get the next one while the question is embedded.
 */
async function hitsOf(
  embeddings: Embeddings,
  collection: RagCollectionDocument,
  { query, mode, k, filter }: Question,
): Promise<Hit[]> {
  const store = await storeAtWork(collection.tenant_id, { timeoutMs: answersWithinMs })
  const asked = { mode, k, ...(mode === 'vector' ? {} : { text: query }), ...(filter ? { filter } : {}) }
  if (mode === 'text') return (await store.search(collection.name, asked)).hits
  const tried: CollectionEmbedder[] = []
  for (let now = collection; ; now = await collectionNamed(collection, collection.name)) {
    const embedder = [now.embedder, now.next_embedder].find(
      (one) => one && !tried.some(({ hash }) => hash === one.hash),
    )
    if (!embedder) throw new StoreError('embedder_mismatch', 'The store has another embedder than the record')
    tried.push(embedder)
    const vector = await vectorOf(embeddings, collection, embedder, query)
    try {
      return (await store.search(collection.name, { ...asked, vector, embedder: pinned(embedder) })).hits
    } catch (error) {
      if (!(error instanceof StoreError && error.code === 'embedder_mismatch')) throw error
    }
  }
}

async function vectorOf(
  embeddings: Embeddings,
  { _id: id, tenant_id }: RagCollectionDocument,
  embedder: CollectionEmbedder,
  query: string,
): Promise<Float32Array> {
  const purpose = { kind: 'collection', id } as const
  const [vector] = await embed(embeddings, embedder, [query], {
    tenant_id,
    purpose,
    signal: AbortSignal.timeout(answersWithinMs),
  })
  return vector as Float32Array
}

/** The hits of documents that are still there, with their names. */
async function named(
  { _id: collection_id, tenant_id }: RagCollectionDocument,
  hits: Hit[],
): Promise<Found[]> {
  const ids = [...new Set(hits.map(({ document_id }) => document_id))]
  const documents = await RagDocument.find(
    { _id: { $in: ids }, tenant_id, collection_id },
    { name: 1 },
  ).lean()
  const names = new Map(documents.map(({ _id, name }) => [_id, name]))
  return hits.flatMap(({ document_id: id, version, metadata, position, score, parts, ...chunk }) => {
    const document = names.get(id)
    return document === undefined
      ? []
      : [{ document: { id, name: document }, version, metadata, position, score, parts, ...placeIn(chunk) }]
  })
}

import type { Filter, Hit, SearchQuery } from '../../images/rag/store.ts'
import { collectionNamed, needReady, type RagCollectionDocument } from './collections.ts'
import { RagDocument } from './documents.ts'
import { type CollectionEmbedder, pinned } from './embedders.ts'
import { embed } from './embedding.ts'
import type { Embeddings } from './embeddings.ts'
import { type Place, placeIn } from './places.ts'
import { answered } from './problems.ts'
import { storeAtWork } from './store-condition.ts'
import { StoreError } from './store-rules.ts'

/** Somebody waits for the answer. */
const answersWithinMs = 30_000

export interface Question {
  query: string
  mode: SearchQuery['mode']
  k: number
  filter?: Filter | undefined
  min_score?: number | undefined
}

export interface Found extends Place, Pick<Hit, 'version' | 'metadata' | 'position' | 'score' | 'parts'> {
  document: { id: string; name: string }
}

/**
 * The chunks of a collection that answer the question best. Throws NotFound, StateConflict, InvalidInput, Unavailable, and
 * what the model gateway refuses.
 */
export async function search(
  embeddings: Embeddings,
  caller: { tenant_id: string },
  name: string,
  question: Question,
): Promise<Found[]> {
  const collection = await collectionNamed(caller, name)
  needReady(collection, 'search the collection')
  const hits = await answered(hitsOf(embeddings, collection, question))
  const { min_score } = question
  return named(collection, min_score === undefined ? hits : hits.filter(({ score }) => score >= min_score))
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

import type { Filter, Hit, SearchQuery } from '../../images/rag/store.ts'
import { collectionNamed, needReady, type RagCollectionDocument } from './collections.ts'
import { RagDocument } from './documents.ts'
import type { Embeddings } from './embeddings.ts'
import { type Place, placeIn } from './places.ts'
import { answered } from './problems.ts'
import { storeAtWork } from './store-condition.ts'

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
  { query, mode, k, filter, min_score }: Question,
): Promise<Found[]> {
  const collection = await collectionNamed(caller, name)
  needReady(collection, 'search the collection')
  const { hits } = await answered(
    (async () =>
      (await storeAtWork(collection.tenant_id, { timeoutMs: answersWithinMs })).search(name, {
        mode,
        k,
        ...(mode === 'vector' ? {} : { text: query }),
        ...(mode === 'text' ? {} : await vectorOf(embeddings, collection, query)),
        ...(filter ? { filter } : {}),
      }))(),
  )
  return named(collection, min_score === undefined ? hits : hits.filter(({ score }) => score >= min_score))
}

async function vectorOf(
  embeddings: Embeddings,
  { _id, tenant_id, embedder }: RagCollectionDocument,
  query: string,
): Promise<Required<Pick<SearchQuery, 'vector' | 'embedder'>>> {
  const { vectors } = await embeddings.embed([query], {
    tenant_id,
    purpose: { kind: 'collection', id: _id },
    connector_id: null,
    model: embedder.id,
    signal: AbortSignal.timeout(answersWithinMs),
  })
  return { vector: vectors[0] as Float32Array, embedder: pinned(embedder) }
}

/** As the store knows an embedder. */
export const pinned = ({ name, hash, dimensions }: RagCollectionDocument['embedder']) => ({
  name,
  hash,
  dimensions,
})

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

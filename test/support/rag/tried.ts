import type { Document, Hit, SearchQuery, Store } from '../../../images/rag/store.ts'
import { embedder, spec, vectorOf } from './samples.ts'
import type { OpenStore } from './stores.ts'

/** What the tests of conformance do with a store. */
export interface Tried {
  store: () => Store
  /** Opens the store's folder again. */
  again: () => Promise<void>
  /** A new collection with these documents. */
  makeCollection: (documents?: Document[]) => Promise<string>
  /** By text, ten hits, unless the query says otherwise. */
  search: (collection: string, query: Partial<SearchQuery>) => Promise<Hit[]>
}

export function tried(opened: () => OpenStore): Tried {
  let made = 0
  return {
    store: () => opened().store,
    again: () => opened().again(),
    async makeCollection(documents = []) {
      const collection = `collection-${++made}`
      await opened().store.createCollection(collection, spec)
      for (const document of documents) await opened().store.replaceDocument(collection, embedder, document)
      return collection
    },
    async search(collection, query) {
      const { hits } = await opened().store.search(collection, { mode: 'text', k: 10, ...query })
      return hits
    },
  }
}

export const textsOf = (hits: Hit[]): string[] => hits.map(({ text }) => text)

/** A search for the vector of this text. */
export const near = (text: string, more: Partial<SearchQuery> = {}): Partial<SearchQuery> => ({
  mode: 'vector',
  vector: vectorOf(text),
  embedder,
  ...more,
})

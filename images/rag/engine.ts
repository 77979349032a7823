import { isDeepStrictEqual } from 'node:util'
import { Collection } from './collection.ts'
import { collectionNotFound, faultOf, StoreError } from './errors.ts'
import * as input from './input.ts'
import type {
  Aside,
  AsideVector,
  CollectionSpec,
  CollectionStats,
  Document,
  Embedder,
  Health,
  Replaced,
  SearchAnswer,
  SearchQuery,
  Snapshot,
  Store,
  Used,
} from './store.ts'
import { WriterThread } from './writer-thread.ts'

export interface EngineSettings {
  /** Is made if it is not there. Nobody else writes in it. */
  folder: string
  /** Both bound memory: codes of all chunks, and caches of each collection. */
  mostChunks: number
  mostCollections: number
  /** The thread that writes is gone: start the process anew. */
  onLost?: (reason: string) => void
}

type State = Collection | 'damaged'

/**
 * The store in SQLite's files. One thread writes; the thread of the caller searches, so that neither a long ingest nor a snapshot
 * keeps searches or `health` waiting.
 */
export class SqliteStore implements Store {
  readonly #settings: EngineSettings
  readonly #writer: WriterThread
  readonly #collections = new Map<string, State>()
  /** Chunks of documents that are being written. */
  #coming = 0
  /** The end of the last change of each collection, and of its creation or removal. */
  readonly #turns = new Map<string, Promise<unknown>>()
  readonly #opened: Promise<void>
  #notReady: string | null = 'The store is loading its collections'

  /** Calls wait until the collections are loaded; `health` does not. */
  constructor(settings: EngineSettings) {
    this.#settings = settings
    this.#writer = new WriterThread(settings.folder, (reason) => {
      this.#notReady = 'The store has stopped'
      settings.onLost?.(reason)
    })
    this.#opened = this.#open()
    this.#opened.catch(() => (this.#notReady = 'The store could not load its collections'))
  }

  /** Rejects if the folder cannot be used. */
  ready(): Promise<void> {
    return this.#opened
  }

  async createCollection(name: string, spec: CollectionSpec): Promise<CollectionStats> {
    input.checkCollectionName(name)
    input.checkSpec(spec)
    const { name: embedderName, hash, dimensions } = spec.embedder
    const wanted = {
      embedder: { name: embedderName, hash, dimensions },
      metadata_schema: { ...spec.metadata_schema },
    }
    return this.#inTurn(name, async () => {
      const known = this.#collections.get(name)
      if (known) return sameCollection(intact(known, name), wanted).stats()
      const { mostCollections } = this.#settings
      if (this.#collections.size >= mostCollections)
        throw new StoreError('store_full', `The store takes ${mostCollections} collections`)
      await this.#writer.run('create', name, wanted)
      return (await this.#load(name, wanted)).stats()
    })
  }

  async dropCollection(name: string): Promise<void> {
    input.checkCollectionName(name)
    await this.#inTurn(name, async () => {
      const known = this.#collections.get(name)
      this.#collections.delete(name)
      if (known && known !== 'damaged') known.close()
      // Also if it is not known: a removal may have failed half way.
      await this.#writer.run('drop', name)
    })
  }

  async replaceDocument(name: string, embedder: Embedder, document: Document): Promise<Replaced> {
    return this.#inTurn(name, async () => {
      const collection = this.#collection(name)
      const accepted = input.acceptDocument(collection.spec, embedder, document)
      this.#checkRoom(accepted.chunks.length)
      this.#coming += accepted.chunks.length
      try {
        const { result, change } = await this.#writer.run('replace', name, embedder, accepted)
        if (change) collection.apply(change)
        // Also if nothing changes: the process may have been killed between the change and this.
        if (!change || change.removed.length) await this.#writer.run('forget', name)
        return result
      } finally {
        this.#coming -= accepted.chunks.length
      }
    })
  }

  async deleteDocument(name: string, id: string, version: number): Promise<void> {
    await this.#inTurn(name, async () => {
      const collection = this.#collection(name)
      input.checkDocumentId(id)
      input.checkVersion(version)
      const change = await this.#writer.run('delete', name, id, version)
      if (change) collection.apply(change)
      await this.#writer.run('forget', name)
    })
  }

  async search(name: string, query: SearchQuery): Promise<SearchAnswer> {
    await this.#opened
    return this.#collection(name).search(query)
  }

  async putAside(name: string, embedder: Embedder, vectors: AsideVector[], most: number): Promise<Aside> {
    return this.#inTurn(name, async () => {
      this.#collection(name)
      const wanted = input.acceptEmbedder(embedder)
      return this.#writer.run('aside', name, wanted, input.acceptAside(wanted, vectors, most), most)
    })
  }

  async useEmbedder(name: string, embedder: Embedder): Promise<Used> {
    return this.#inTurn(name, async (): Promise<Used> => {
      const collection = this.#collection(name)
      const wanted = input.acceptEmbedder(embedder)
      const lacking = await this.#writer.run('lacking', name, wanted)
      if (lacking) return { outcome: 'vectors_missing', lacking }
      // Before the change: searches would have to wait for it.
      const isPresent = input.sameEmbedder(collection.spec.embedder, wanted)
      const mirror = isPresent ? null : await collection.readAside(wanted)
      const generation = await this.#writer.run('use', name, wanted)
      if (mirror && generation !== null) collection.use(wanted, mirror, generation)
      await this.#writer.run('forget', name)
      return { outcome: 'used' }
    })
  }

  async stats(name: string): Promise<CollectionStats> {
    await this.#opened
    return this.#collection(name).stats()
  }

  async snapshot(name: string): Promise<Snapshot> {
    return this.#inTurn(name, async () => {
      this.#collection(name)
      return this.#writer.run('snapshot', name)
    })
  }

  async health(): Promise<Health> {
    return { ready: this.#notReady === null, reason: this.#notReady }
  }

  /** Ends after the changes that are under way. */
  async close(): Promise<void> {
    this.#notReady = 'The store is stopping'
    await this.#opened.catch(() => {}) // its caller knows
    await Promise.allSettled(this.#turns.values())
    for (const collection of this.#collections.values()) if (collection !== 'damaged') collection.close()
    this.#collections.clear()
    await this.#writer.close()
  }

  async #open(): Promise<void> {
    for (const { name, spec } of await this.#writer.run('open')) {
      this.#collections.set(name, 'damaged')
      // A damaged collection keeps no other from its readers.
      if (spec) await this.#load(name, spec).catch(() => {})
    }
    this.#notReady = null
  }

  async #load(name: string, spec: CollectionSpec): Promise<Collection> {
    const collection = await Collection.open(this.#settings.folder, name, spec)
    this.#collections.set(name, collection)
    return collection
  }

  #collection(name: string): Collection {
    input.checkCollectionName(name)
    const known = this.#collections.get(name)
    if (!known) throw collectionNotFound(name)
    return intact(known, name)
  }

  /** Changes of one collection happen one after the other, so that each finds what the one before has left. */
  async #inTurn<T>(name: string, work: () => Promise<T>): Promise<T> {
    await this.#opened
    const before = this.#turns.get(name)
    const turn = Promise.resolve(before)
      .catch(() => {})
      .then(work)
      .catch((error: unknown) => {
        throw faultOf(error)
      })
    this.#turns.set(name, turn)
    try {
      return await turn
    } finally {
      if (this.#turns.get(name) === turn) this.#turns.delete(name)
    }
  }

  #checkRoom(more: number): void {
    const { mostChunks } = this.#settings
    const all = [...this.#collections.values()].reduce(
      (sum, collection) => sum + (collection === 'damaged' ? 0 : collection.chunks),
      this.#coming,
    )
    if (all + more > mostChunks)
      throw new StoreError(
        'store_full',
        `The store has ${all} chunks and takes ${mostChunks}: ${more} more do not fit`,
      )
  }
}

function intact(state: State, name: string): Collection {
  if (state === 'damaged')
    throw new StoreError('collection_damaged', `The collection ${name} cannot be read: restore or drop it`)
  return state
}

/** Throws `collection_exists` unless the collection is as wanted. */
function sameCollection(collection: Collection, wanted: CollectionSpec): Collection {
  const { embedder, metadata_schema } = collection.spec
  if (
    !input.sameEmbedder(embedder, wanted.embedder) ||
    !isDeepStrictEqual(metadata_schema, wanted.metadata_schema)
  )
    throw new StoreError(
      'collection_exists',
      `There is a collection ${collection.name} with another embedder or metadata schema`,
    )
  return collection
}

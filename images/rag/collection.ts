import type { DatabaseSync } from 'node:sqlite'
import { setImmediate as nextTurn } from 'node:timers/promises'
import { asideOf } from './aside.ts'
import type { Change } from './changes.ts'
import { generationOf, openForReading } from './database.ts'
import { faultOf, StoreError } from './errors.ts'
import { bytesOfCollection, collectionFile } from './files.ts'
import { acceptQuery } from './input.ts'
import { Mirror } from './mirror.ts'
import { Searcher } from './search.ts'
import type {
  CollectionSpec,
  CollectionStats,
  Embedder,
  Metadata,
  SearchAnswer,
  SearchQuery,
} from './store.ts'
import { codeOf, vectorIn } from './vectors.ts'

// A collection in the main thread, which searches it: the file as another thread writes it, and its mirror.

const chunksPerTurn = 2_000

export class Collection {
  readonly name: string
  readonly #folder: string
  readonly #database: DatabaseSync
  #spec: CollectionSpec
  #mirror: Mirror
  #searcher: Searcher
  /** Searches that have found the file ahead of the mirror. */
  #behind: (() => void)[] = []
  #closed = false

  /** Throws if the file cannot be read. */
  static async open(folder: string, name: string, spec: CollectionSpec): Promise<Collection> {
    const collection = new Collection(folder, name, spec)
    try {
      const generation = generationOf(collection.#database)
      collection.use(spec.embedder, await collection.#read('vectors', spec.embedder), generation)
      return collection
    } catch (error) {
      collection.close()
      throw error
    }
  }

  private constructor(folder: string, name: string, spec: CollectionSpec) {
    this.name = name
    this.#spec = spec
    this.#folder = folder
    this.#database = openForReading(collectionFile(folder, name))
    this.#mirror = new Mirror(spec.embedder.dimensions)
    this.#searcher = new Searcher(this.#database, spec, this.#mirror)
  }

  get spec(): CollectionSpec {
    return this.#spec
  }

  get chunks(): number {
    return this.#mirror.chunks
  }

  apply(change: Change): void {
    this.#mirror.apply(change)
    for (const goOn of this.#behind.splice(0)) goOn()
  }

  /**
   * Searches file and mirror at the same generation. A change is in the file first; its message to the mirror is on its way
   * then. Throws `invalid_input`, `invalid_filter` and `embedder_mismatch`.
   */
  async search(query: SearchQuery): Promise<SearchAnswer> {
    for (;;) {
      if (this.#closed) throw new StoreError('collection_not_found', `There is no collection ${this.name}`)
      const answer = this.#searchNow(query)
      if (answer) return answer
      await new Promise<void>((resolve) => this.#behind.push(resolve))
    }
  }

  stats(): CollectionStats {
    return {
      name: this.name,
      ...this.spec,
      documents: this.#mirror.documents,
      chunks: this.#mirror.chunks,
      bytes: bytesOfCollection(this.#folder, this.name),
      generation: this.#mirror.generation,
      aside: asideOf(this.#database),
    }
  }

  /** The mirror of the vectors aside, for `use`. Nothing is written meanwhile. */
  readAside(embedder: Embedder): Promise<Mirror> {
    return this.#read('aside_vectors', embedder)
  }

  /** Searches by the vectors of this embedder, which the file has from this generation on. */
  use(embedder: Embedder, mirror: Mirror, generation: number): void {
    mirror.generation = generation
    this.#spec = { ...this.#spec, embedder }
    this.#mirror = mirror
    this.#searcher = new Searcher(this.#database, this.#spec, mirror)
    for (const goOn of this.#behind.splice(0)) goOn()
  }

  close(): void {
    if (this.#closed) return
    this.#closed = true
    this.#database.close()
    for (const goOn of this.#behind.splice(0)) goOn()
  }

  /** Null: the mirror is behind. One turn of the event loop, so that the reader never keeps the log from being emptied. */
  #searchNow(query: SearchQuery): SearchAnswer | null {
    this.#database.exec('BEGIN')
    try {
      const generation = generationOf(this.#database)
      if (generation !== this.#mirror.generation) return null
      // Now: the embedder may have been another one when the search came.
      const accepted = acceptQuery(this.#spec, query)
      return { hits: this.#searcher.search(accepted, query.filter), generation }
    } catch (error) {
      throw faultOf(error)
    } finally {
      this.#database.exec('COMMIT')
    }
  }

  /** Reads the file into a mirror, in steps between which the thread answers others. Nothing is written meanwhile. */
  async #read(table: 'vectors' | 'aside_vectors', { dimensions }: Embedder): Promise<Mirror> {
    const database = this.#database
    const mirror = new Mirror(dimensions)
    for (const row of database.prepare('SELECT number, metadata FROM documents').iterate())
      mirror.putDocument(row['number'] as number, JSON.parse(row['metadata'] as string) as Metadata)
    const rows = database.prepare(
      `SELECT id, document, vector FROM chunks JOIN ${table} USING (id) WHERE id > ? ORDER BY id LIMIT ${chunksPerTurn}`,
    )
    for (let last = 0; ; ) {
      const some = rows.all(last)
      for (const { id, document, vector } of some)
        mirror.addChunk(
          id as number,
          document as number,
          codeOf(vectorIn(vector as Uint8Array) as Float32Array),
        )
      if (some.length < chunksPerTurn) return mirror
      last = some.at(-1)?.['id'] as number
      await nextTurn()
    }
  }
}

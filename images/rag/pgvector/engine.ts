import { readdirSync, renameSync, rmSync, statfsSync, statSync } from 'node:fs'
import { isDeepStrictEqual } from 'node:util'
import { join } from 'node:path'
import { StoreError } from '../errors.ts'
import * as input from '../input.ts'
import type * as types from '../store.ts'
import { putAside, useEmbedder } from './aside.ts'
import { deleteDocument, replaceDocument } from './changes.ts'
import { isTableGone } from './errors.ts'
import { forget, forgetDropped } from './forget.ts'
import { database, Postgres, superuser } from './postgres.ts'
import {
  type Collection,
  collectionNamed,
  createCollectionTables,
  createCommon,
  findCollection,
  schemaOf,
} from './schema.ts'
import { search } from './search.ts'
import { type Session, Sessions } from './sessions.ts'
import { WordSearch } from './word-search.ts'

export interface PgvectorSettings {
  /** Is made if it is not there. Nobody else writes in it. */
  folder: string
  /** Of PostgreSQL's programs. */
  programs: string
  /** As which PostgreSQL runs if this process is root's. */
  user: number | null
  mostChunks: number
  mostCollections: number
  /** So many chunks and fewer are all compared, without the index. */
  exactUpTo?: number
}

const ending = '.dump'
/** A database whose disk is full stops, and needs room to start again. */
const leastFreeBytes = 192 * 1024 ** 2
/** A search that finds a table gone begins anew: the collection has another embedder. */
const mostTries = 5

/** The store in PostgreSQL with pgvector, which runs as this process's child. */
export class PgvectorStore implements types.Store {
  readonly #settings: PgvectorSettings
  readonly #postgres: Postgres
  readonly #sessions: Sessions
  readonly #words = new Map<number, WordSearch>()
  /** Chunks of documents that are being written. */
  #coming = 0
  /** The end of the last change of each collection, and of its creation or removal. */
  readonly #turns = new Map<string, Promise<unknown>>()
  readonly #opened: Promise<void>
  #notReady: string | null = 'The store is starting its database'

  /** Calls wait until the database has started; `health` does not. */
  constructor(settings: PgvectorSettings) {
    this.#settings = settings
    this.#postgres = new Postgres(settings)
    this.#sessions = new Sessions(this.#postgres.host)
    this.#opened = this.#open()
    this.#opened.catch(() => (this.#notReady = 'The store could not start its database'))
  }

  /** Rejects if the database does not start. */
  ready(): Promise<void> {
    return this.#opened
  }

  async createCollection(name: string, spec: types.CollectionSpec): Promise<types.CollectionStats> {
    input.checkCollectionName(name)
    input.checkSpec(spec)
    const wanted = {
      embedder: input.acceptEmbedder(spec.embedder),
      metadata_schema: { ...spec.metadata_schema },
    }
    return this.#inTurn(name, () =>
      this.#sessions.inTransaction(async (session) => {
        const there = await findCollection(session, name)
        if (there) return statsOf(session, sameCollection(there, wanted))
        const { mostCollections } = this.#settings
        const [count] = await session.run<{ all: number }>('SELECT count(*) AS all FROM collections')
        if ((count?.all ?? 0) >= mostCollections)
          throw new StoreError('store_full', `The store takes ${mostCollections} collections`)
        this.#checkDisk()
        await createCollectionTables(session, name, wanted)
        return statsOf(session, await collectionNamed(session, name))
      }),
    )
  }

  async dropCollection(name: string): Promise<void> {
    input.checkCollectionName(name)
    await this.#inTurn(name, async () => {
      rmSync(join(this.#settings.folder, snapshotPath(name)), { force: true })
      await this.#sessions.inTransaction(async (session) => {
        const there = await findCollection(session, name, { lock: true })
        if (!there) return
        await session.run(`DROP SCHEMA ${schemaOf(there)} CASCADE`)
        await session.run('DELETE FROM removals WHERE collection = $1', [there.number])
        await session.run('DELETE FROM collections WHERE number = $1', [there.number])
        this.#words.delete(there.number)
      })
      // Also if it is not known: the process may have been killed between the removal and this.
      await forgetDropped(this.#sessions)
    })
  }

  async replaceDocument(
    name: string,
    embedder: types.Embedder,
    document: types.Document,
  ): Promise<types.Replaced> {
    input.checkCollectionName(name)
    let coming = 0
    try {
      return await this.#changing(name, () =>
        replaceDocument(this.#sessions, name, embedder, document, async (more) => {
          this.#checkDisk()
          await this.#checkRoom(more)
          coming = more
          this.#coming += more
        }),
      )
    } finally {
      this.#coming -= coming
    }
  }

  async deleteDocument(name: string, id: string, version: number): Promise<void> {
    input.checkCollectionName(name)
    await this.#changing(name, () => {
      input.checkDocumentId(id)
      input.checkVersion(version)
      return deleteDocument(this.#sessions, name, id, version)
    })
  }

  async search(name: string, query: types.SearchQuery): Promise<types.SearchAnswer> {
    input.checkCollectionName(name)
    await this.#opened
    const { exactUpTo = 10_000 } = this.#settings
    for (let left = mostTries; ; left--) {
      try {
        return await search(this.#sessions, name, query, (number) => this.#wordsOf(number), { exactUpTo })
      } catch (error) {
        if (!isTableGone(error) || left === 1) throw error
      }
    }
  }

  async putAside(
    name: string,
    embedder: types.Embedder,
    vectors: types.AsideVector[],
    most: number,
  ): Promise<types.Aside> {
    input.checkCollectionName(name)
    return this.#inTurn(name, () => {
      if (vectors.length) this.#checkDisk()
      return putAside(this.#sessions, name, embedder, vectors, most)
    })
  }

  async useEmbedder(name: string, embedder: types.Embedder): Promise<types.Used> {
    input.checkCollectionName(name)
    return this.#changing(name, () => useEmbedder(this.#sessions, name, embedder))
  }

  async stats(name: string): Promise<types.CollectionStats> {
    input.checkCollectionName(name)
    await this.#opened
    return this.#sessions.atOneMoment(async (session) =>
      statsOf(session, await collectionNamed(session, name)),
    )
  }

  async snapshot(name: string): Promise<types.Snapshot> {
    input.checkCollectionName(name)
    return this.#inTurn(name, () =>
      this.#sessions.atOneMoment(async (session) => {
        const collection = await collectionNamed(session, name)
        const [moment] = await session.run<{ id: string }>('SELECT pg_export_snapshot() AS id')
        const path = snapshotPath(name)
        const whole = join(this.#settings.folder, path)
        const options = {
          host: this.#postgres.host,
          username: superuser,
          dbname: database,
          schema: schemaOf(collection),
          snapshot: moment?.id ?? '',
          format: 'custom',
          file: `${whole}.part`,
        }
        await this.#postgres.program(
          'pg_dump',
          Object.entries(options).map(([option, value]) => `--${option}=${value}`),
        )
        renameSync(`${whole}.part`, whole)
        return { path, bytes: statSync(whole).size, generation: collection.generation }
      }),
    )
  }

  async health(): Promise<types.Health> {
    const reason =
      this.#notReady ?? (this.#postgres.answers ? null : 'The database of the store does not answer')
    return { ready: reason === null, reason }
  }

  /** Ends after the changes that are under way. */
  async close(): Promise<void> {
    this.#notReady = 'The store is stopping'
    await this.#opened.catch(() => {}) // its caller knows
    await Promise.allSettled(this.#turns.values())
    await this.#sessions.close()
    await this.#postgres.stop()
  }

  async #open(): Promise<void> {
    await this.#postgres.start()
    const snapshots = join(this.#settings.folder, 'snapshots')
    this.#postgres.makeFolder(snapshots)
    await this.#sessions.inTransaction(createCommon)
    const collections = await this.#sessions.alone((session) =>
      session.run<Pick<Collection, 'number' | 'name'>>('SELECT number, name FROM collections'),
    )
    // Of deletions whose process was killed, and of snapshots that were.
    for (const { number } of collections) await forget(this.#sessions, number)
    const known = collections.map(({ name }) => name + ending)
    for (const file of readdirSync(snapshots)) if (!known.includes(file)) rmSync(join(snapshots, file))
    this.#notReady = null
  }

  #wordsOf(number: number): WordSearch {
    const words = this.#words.get(number) ?? new WordSearch()
    this.#words.set(number, words)
    return words
  }

  /** Makes a change, and then forgets what it has removed: also what a change that was killed before has removed. */
  async #changing<T>(name: string, change: () => Promise<T>): Promise<T> {
    const result = await this.#inTurn(name, change)
    // In a turn of its own: changes that wait already come first, and all are forgotten at once.
    await this.#inTurn(name, async () => {
      const collection = await this.#sessions.alone((session) => findCollection(session, name))
      if (collection) await forget(this.#sessions, collection.number)
    })
    return result
  }

  /** Changes of one collection happen one after the other, so that each finds what the one before has left. */
  async #inTurn<T>(name: string, work: () => Promise<T>): Promise<T> {
    await this.#opened
    const before = this.#turns.get(name)
    const turn = Promise.resolve(before)
      .catch(() => {})
      .then(work)
    this.#turns.set(name, turn)
    try {
      return await turn
    } finally {
      if (this.#turns.get(name) === turn) this.#turns.delete(name)
    }
  }

  async #checkRoom(more: number): Promise<void> {
    const { mostChunks } = this.#settings
    const [sum] = await this.#sessions.alone((session) =>
      session.run<{ chunks: number }>('SELECT coalesce(sum(chunks), 0)::bigint AS chunks FROM collections'),
    )
    const all = (sum?.chunks ?? 0) + this.#coming
    if (all + more > mostChunks)
      throw new StoreError(
        'store_full',
        `The store has ${all} chunks and takes ${mostChunks}: ${more} more do not fit`,
      )
  }

  /** Throws `store_full` while there is still room for the log, with which the database starts again. */
  #checkDisk(): void {
    const { bavail, bsize } = statfsSync(this.#settings.folder)
    if (bavail * bsize < leastFreeBytes) throw new StoreError('store_full', 'The disk of the store is full')
  }
}

/** Relative to the store's folder. */
const snapshotPath = (name: string): string => join('snapshots', name + ending)

async function statsOf(session: Session, collection: Collection): Promise<types.CollectionStats> {
  const [size] = await session.run<{ bytes: number }>(
    `SELECT coalesce(sum(pg_total_relation_size(oid)), 0)::bigint AS bytes FROM pg_class
     WHERE relnamespace = $1::regnamespace AND relkind = 'r'`,
    [schemaOf(collection)],
  )
  const { name, spec, documents, chunks, generation, aside } = collection
  return { name, ...spec, documents, chunks, bytes: size?.bytes ?? 0, generation, aside }
}

/** Throws `collection_exists` unless the collection is as wanted. */
function sameCollection(collection: Collection, wanted: types.CollectionSpec): Collection {
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

import { fsyncSync, mkdirSync, openSync, closeSync, renameSync, rmSync, statSync } from 'node:fs'
import { join } from 'node:path'
import type { DatabaseSync } from 'node:sqlite'
import { parentPort, workerData } from 'node:worker_threads'
import { lackingOf, putAside, useEmbedder } from './aside.ts'
import { type Change, deleteDocument, replaceDocument } from './changes.ts'
import { createAside, createSchema, forget, generationOf, openForWriting, specOf } from './database.ts'
import { faultOf, StoreError } from './errors.ts'
import { collectionFile, collectionsIn, removeCollection, snapshotPath } from './files.ts'
import type { Aside, AsideVector, CollectionSpec, Document, Embedder, Replaced, Snapshot } from './store.ts'

// The thread that writes all collections of a store, one change after the other. The main thread searches meanwhile.

export interface Opened {
  name: string
  /** Null: the file cannot be read. */
  spec: CollectionSpec | null
}

/** What the main thread asks for. */
export interface Orders {
  open: () => Opened[]
  create: (name: string, spec: CollectionSpec) => void
  drop: (name: string) => void
  replace: (
    name: string,
    embedder: Embedder,
    document: Document,
  ) => { result: Replaced; change: Change | null }
  delete: (name: string, id: string, version: number) => Change | null
  aside: (name: string, embedder: Embedder, vectors: AsideVector[], most: number) => Aside
  /** How many chunks have no vector of this embedder. */
  lacking: (name: string, embedder: Embedder) => number
  use: (name: string, embedder: Embedder) => number | null
  /** Takes what was removed out of all files of the collection. */
  forget: (name: string) => void
  snapshot: (name: string) => Snapshot
  close: () => void
}

const { folder } = workerData as { folder: string }
const open = new Map<string, DatabaseSync>()

function databaseOf(name: string): DatabaseSync {
  const database = open.get(name)
  if (!database) throw new Error('the collection is not open')
  return database
}

const orders: Orders = {
  open() {
    for (const room of ['collections', 'snapshots']) mkdirSync(join(folder, room), { recursive: true })
    return collectionsIn(folder).flatMap((name) => openCollection(name) ?? [])
  },

  create(name, spec) {
    orders.drop(name) // what a creation that failed has left
    const database = openForWriting(collectionFile(folder, name))
    try {
      createSchema(database, spec)
    } catch (error) {
      database.close()
      removeCollection(folder, name)
      throw error
    }
    open.set(name, database)
  },

  drop(name) {
    open.get(name)?.close()
    open.delete(name)
    removeCollection(folder, name)
  },

  replace: (name, embedder, document) => replaceDocument(databaseOf(name), embedder, document),
  delete: (name, id, version) => deleteDocument(databaseOf(name), id, version),
  aside: (name, embedder, vectors, most) => putAside(databaseOf(name), embedder, vectors, most),
  lacking: (name, embedder) => lackingOf(databaseOf(name), embedder),
  use: (name, embedder) => useEmbedder(databaseOf(name), embedder),
  forget: (name) => forget(databaseOf(name)),

  snapshot(name) {
    const database = databaseOf(name)
    const path = join(folder, snapshotPath(name))
    const part = `${path}.part`
    rmSync(part, { force: true }) // of a snapshot that failed
    database.prepare('VACUUM INTO ?').run(part)
    sync(part)
    renameSync(part, path)
    return { path: snapshotPath(name), bytes: statSync(path).size, generation: generationOf(database) }
  },

  close() {
    for (const database of open.values()) database.close()
    open.clear()
  },
}

/** Null: nobody was told that this collection was created. */
function openCollection(name: string): Opened | null {
  let database: DatabaseSync | null = null
  try {
    database = openForWriting(collectionFile(folder, name))
    const spec = specOf(database)
    if (!spec) {
      database.close()
      removeCollection(folder, name)
      return null
    }
    createAside(database)
    forget(database) // of deletions whose process was killed
    open.set(name, database)
    return { name, spec }
  } catch {
    // The collections that can be read are served all the same.
    if (database?.isOpen) database.close()
    return { name, spec: null }
  }
}

function sync(path: string): void {
  const file = openSync(path, 'r+')
  fsyncSync(file)
  closeSync(file)
}

export interface Order {
  id: number
  order: keyof Orders
  args: unknown[]
}
export type Answer =
  | { id: number; result: unknown }
  /** `code`: of a StoreError; null for an error that is not the caller's. */
  | { id: number; error: { code: StoreError['code'] | null; message: string } }

parentPort?.on('message', ({ id, order, args }: Order) => {
  let answer: Answer
  try {
    answer = { id, result: (orders[order] as (...given: unknown[]) => unknown)(...args) }
  } catch (thrown) {
    const error = faultOf(thrown)
    const code = error instanceof StoreError ? error.code : null
    answer = { id, error: { code, message: error instanceof Error ? error.message : String(error) } }
  }
  parentPort?.postMessage(answer, [])
})

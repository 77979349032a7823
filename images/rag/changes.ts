import type { DatabaseSync } from 'node:sqlite'
import { forgetAside } from './aside.ts'
import { inTransaction, nextGeneration } from './database.ts'
import { StoreError } from './errors.ts'
import type { Chunk, Document, Embedder, Metadata, Replaced } from './store.ts'
import { bytesOf, vectorIn, wordsFor, writeCode } from './vectors.ts'

// The changes of a collection, each one transaction.

/** What a change means for the mirror. Chunks and documents are named by their numbers in the file. */
export interface Change {
  generation: number
  removed: number[]
  added: number[]
  /** The sign codes of the added chunks, one after the other. */
  codes: Uint32Array
  document: number
  /** Null: the document is gone. */
  metadata: Metadata | null
}

interface StoredChunk {
  id: number
  hash: string
  text: string
}

/** Throws `stale_version`. */
export function replaceDocument(
  database: DatabaseSync,
  { dimensions }: Embedder,
  document: Document,
): { result: Replaced; change: Change | null } {
  return inTransaction(database, () => {
    const { chunks, version, metadata } = document
    const stored = storedDocument(database, document.id)
    checkNotStale(database, document, stored?.version ?? 0)
    if (stored?.version === version) {
      const count = chunksOf(database, stored.number).length
      return { result: { outcome: 'unchanged', chunks: count }, change: null }
    }
    const plan = makePlan(stored ? chunksOf(database, stored.number) : [], chunks)
    if (plan.missing.length)
      return { result: { outcome: 'vectors_missing', hashes: plan.missing }, change: null }

    const number = putDocument(database, document, stored?.number ?? null)
    const added = addChunks(database, number, plan.added)
    keepChunks(database, plan.kept)
    removeChunks(database, plan.removed)
    const change: Change = {
      generation: nextGeneration(database),
      removed: plan.removed.map(({ id }) => id),
      ...withCodes(added, dimensions),
      document: number,
      metadata,
    }
    return { result: { outcome: 'replaced', chunks: chunks.length, kept: plan.kept.length }, change }
  })
}

/** Null: there is no such document; its version is noted all the same. Throws `stale_version`. */
export function deleteDocument(database: DatabaseSync, id: string, version: number): Change | null {
  return inTransaction(database, () => {
    const stored = storedDocument(database, id)
    if (stored && stored.version > version) throw stale(stored.version)
    database
      .prepare(
        'INSERT INTO deletions VALUES (?, ?) ON CONFLICT (id) DO UPDATE SET version = max(version, excluded.version)',
      )
      .run(id, version)
    if (!stored) return null
    const removed = chunksOf(database, stored.number)
    removeChunks(database, removed)
    database.prepare('DELETE FROM documents WHERE number = ?').run(stored.number)
    return {
      generation: nextGeneration(database),
      removed: removed.map((chunk) => chunk.id),
      added: [],
      codes: new Uint32Array(),
      document: stored.number,
      metadata: null,
    }
  })
}

interface Placed {
  position: number
  chunk: Chunk
}
interface Plan {
  kept: { id: number; at: Placed }[]
  /** `from`: the stored chunk that has the vector, if the caller sent none. */
  added: { at: Placed; from: number | null }[]
  removed: StoredChunk[]
  /** Hashes of chunks without a vector anywhere. */
  missing: string[]
}

/** A chunk that comes without a vector stays as it is, if it is there; all others are written. */
function makePlan(stored: StoredChunk[], chunks: Chunk[]): Plan {
  const vectors = new Map(stored.map(({ hash, id }) => [hash, id]))
  const free = Map.groupBy(stored, ({ hash }) => hash)
  const left = new Set(stored)
  const missing = new Set<string>()
  const plan: Omit<Plan, 'removed' | 'missing'> = { kept: [], added: [] }
  for (const [position, chunk] of chunks.entries()) {
    const at = { position, chunk }
    const from = chunk.vector ? null : vectors.get(chunk.hash)
    const same = from ? free.get(chunk.hash)?.at(-1) : undefined
    if (same && same.text === chunk.text) {
      free.get(chunk.hash)?.pop()
      left.delete(same)
      plan.kept.push({ id: same.id, at })
    } else if (from === undefined) missing.add(chunk.hash)
    else plan.added.push({ at, from })
  }
  return { ...plan, removed: [...left], missing: [...missing] }
}

const storedDocument = (database: DatabaseSync, id: string) =>
  database.prepare('SELECT number, version FROM documents WHERE id = ?').get(id) as
    | { number: number; version: number }
    | undefined

const chunksOf = (database: DatabaseSync, number: number): StoredChunk[] =>
  database.prepare('SELECT id, hash, text FROM chunks WHERE document = ?').all(number) as never

const stale = (version: number): StoreError =>
  new StoreError('stale_version', `Version ${version} of the document is there, or was deleted`)

function checkNotStale(database: DatabaseSync, { id, version }: Document, stored: number): void {
  if (stored > version) throw stale(stored)
  const deleted = database.prepare('SELECT version FROM deletions WHERE id = ?').get(id)
  if (deleted && (deleted['version'] as number) >= version) throw stale(deleted['version'] as number)
}

/** The document's number in the file. */
function putDocument(database: DatabaseSync, document: Document, number: number | null): number {
  const { lastInsertRowid } = database
    .prepare('INSERT OR REPLACE INTO documents (number, id, version, metadata) VALUES (?, ?, ?, ?)')
    .run(number, document.id, document.version, JSON.stringify(document.metadata))
  return Number(lastInsertRowid)
}

interface Added {
  id: number
  vector: Float32Array
}

function addChunks(database: DatabaseSync, document: number, added: Plan['added']): Added[] {
  const chunks = database.prepare(
    'INSERT INTO chunks (document, position, hash, locator, text) VALUES (?, ?, ?, ?, ?)',
  )
  const vectors = database.prepare('INSERT INTO vectors (id, vector) VALUES (?, ?)')
  const words = database.prepare('INSERT INTO words (rowid, text) VALUES (?, ?)')
  return added.map(({ at: { position, chunk }, from }) => {
    const vector = chunk.vector ?? vectorOf(database, from as number)
    const { hash, locator, text } = chunk
    const id = Number(chunks.run(document, position, hash, JSON.stringify(locator), text).lastInsertRowid)
    vectors.run(id, bytesOf(vector))
    words.run(id, text)
    return { id, vector }
  })
}

function vectorOf(database: DatabaseSync, id: number): Float32Array {
  const row = database.prepare('SELECT vector FROM vectors WHERE id = ?').get(id)
  return vectorIn(row?.['vector'] as Uint8Array) as Float32Array
}

function keepChunks(database: DatabaseSync, kept: Plan['kept']): void {
  const update = database.prepare('UPDATE chunks SET position = ?, locator = ? WHERE id = ?')
  for (const { id, at } of kept) update.run(at.position, JSON.stringify(at.chunk.locator), id)
}

function removeChunks(database: DatabaseSync, removed: StoredChunk[]): void {
  // The index of words has no texts of its own: it has to be told which words go.
  const words = database.prepare("INSERT INTO words (words, rowid, text) VALUES ('delete', ?, ?)")
  const vectors = database.prepare('DELETE FROM vectors WHERE id = ?')
  const chunks = database.prepare('DELETE FROM chunks WHERE id = ?')
  for (const { id, text } of removed) {
    words.run(id, text)
    vectors.run(id)
    chunks.run(id)
  }
  forgetAside(
    database,
    removed.map(({ id }) => id),
  )
}

function withCodes(added: Added[], dimensions: number): Pick<Change, 'added' | 'codes'> {
  const words = wordsFor(dimensions)
  const codes = new Uint32Array(added.length * words)
  for (const [index, { vector }] of added.entries()) writeCode(vector, codes, index * words)
  return { added: added.map(({ id }) => id), codes }
}

import type { DatabaseSync } from 'node:sqlite'
import { chunkName, idInName } from './chunk-name.ts'
import { createAside, inTransaction, nextGeneration, specOf } from './database.ts'
import { StoreError } from './errors.ts'
import { sameEmbedder } from './input.ts'
import type { Aside, AsideVector, CollectionSpec, Embedder, LackingChunk } from './store.ts'
import { bytesOf } from './vectors.ts'

// The vectors of another embedder, which are made aside and then take the place of the present ones. Texts, words and documents
// are the same for both.

/** The embedder whose vectors are aside. Null: there are none. */
export function asideOf(database: DatabaseSync): Embedder | null {
  const row = database.prepare('SELECT embedder FROM aside').get()
  return row ? (JSON.parse(row['embedder'] as string) as Embedder) : null
}

/** Throws `embedder_mismatch`. */
export function putAside(
  database: DatabaseSync,
  embedder: Embedder,
  vectors: AsideVector[],
  most: number,
): Aside {
  return inTransaction(database, () => {
    const all = countOf(database, 'chunks')
    if (sameEmbedder(presentSpec(database).embedder, embedder)) return { chunks: [], lacking: 0, all }
    if (!isAside(database, embedder)) {
      // The caller does not know yet that this change was given up.
      if (vectors.length)
        throw new StoreError('embedder_mismatch', `No vectors of ${embedder.name} are being made`)
      dropAside(database)
      database.prepare('INSERT INTO aside VALUES (?, 0)').run(JSON.stringify(embedder))
    }
    add(database, vectors)
    const { given } = database.prepare('SELECT given FROM aside').get() as { given: number }
    const lacking = all - given
    return { chunks: lacking ? lackingChunks(database, most) : [], lacking, all }
  })
}

/** How many chunks have no vector of this embedder. */
export function lackingOf(database: DatabaseSync, embedder: Embedder): number {
  if (sameEmbedder(presentSpec(database).embedder, embedder)) return 0
  return countOf(database, isAside(database, embedder) ? `chunks WHERE ${isLacking}` : 'chunks')
}

/**
 * Gives the collection this embedder, and drops what is aside. No chunk may lack a vector. Returns the next generation; null if
 * the embedder was the present one.
 */
export function useEmbedder(database: DatabaseSync, embedder: Embedder): number | null {
  return inTransaction(database, () => {
    const spec = presentSpec(database)
    if (sameEmbedder(spec.embedder, embedder)) {
      if (asideOf(database)) dropAside(database)
      return null
    }
    database.exec('DROP TABLE vectors; ALTER TABLE aside_vectors RENAME TO vectors')
    dropAside(database)
    database.prepare('UPDATE collection SET spec = ?').run(JSON.stringify({ ...spec, embedder }))
    return nextGeneration(database)
  })
}

/** For chunks that are removed. In their transaction. */
export function forgetAside(database: DatabaseSync, ids: number[]): void {
  const vectors = database.prepare('DELETE FROM aside_vectors WHERE id = ?')
  const gone = ids.reduce((sum, id) => sum + Number(vectors.run(id).changes), 0)
  if (gone) database.prepare('UPDATE aside SET given = given - ?').run(gone)
}

function dropAside(database: DatabaseSync): void {
  database.exec('DELETE FROM aside; DROP TABLE IF EXISTS aside_vectors')
  createAside(database)
}

function add(database: DatabaseSync, vectors: AsideVector[]): void {
  const chunks = database.prepare('SELECT text FROM chunks WHERE id = ?')
  const insert = database.prepare('INSERT INTO aside_vectors VALUES (?, ?) ON CONFLICT DO NOTHING')
  let given = 0
  for (const { chunk, vector } of vectors) {
    const id = idInName(chunk)
    const text = chunks.get(id)?.['text'] as string | undefined
    // Gone meanwhile, or another chunk has its number now.
    if (text === undefined || chunkName(id, text) !== chunk) continue
    given += Number(insert.run(id, bytesOf(vector)).changes)
  }
  database.prepare('UPDATE aside SET given = given + ?').run(given)
}

const isLacking = 'NOT EXISTS (SELECT 1 FROM aside_vectors WHERE aside_vectors.id = chunks.id)'

function lackingChunks(database: DatabaseSync, most: number): LackingChunk[] {
  const some = (where: string) =>
    database
      .prepare(`SELECT id, text FROM chunks WHERE ${where} ORDER BY id LIMIT ?`)
      .all(most) as unknown as {
      id: number
      text: string
    }[]
  // They come in the order of their numbers, so that mostly all behind the last one lack a vector: this needs no search.
  const next = some('id > (SELECT coalesce(max(id), 0) FROM aside_vectors)')
  return (next.length ? next : some(isLacking)).map(({ id, text }) => ({ chunk: chunkName(id, text), text }))
}

const isAside = (database: DatabaseSync, embedder: Embedder): boolean => {
  const aside = asideOf(database)
  return aside !== null && sameEmbedder(aside, embedder)
}

const presentSpec = (database: DatabaseSync): CollectionSpec => specOf(database) as CollectionSpec

const countOf = (database: DatabaseSync, from: string): number =>
  (database.prepare(`SELECT count(*) AS n FROM ${from}`).get() as { n: number }).n

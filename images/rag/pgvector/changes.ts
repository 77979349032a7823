import { acceptDocument } from '../input.ts'
import { checkNotStale, makePlan, type Plan, stale, type StoredChunk } from '../plan.ts'
import type { Document, Embedder, Replaced } from '../store.ts'
import { fieldsOf } from './filter.ts'
import { type Collection, collectionNamed, createTables, schemaOf, tableOf } from './schema.ts'
import { type Session, type Sessions, vectorsBytes } from './sessions.ts'
import { plainWords } from './words.ts'

// The changes of a collection, each one transaction. Nobody else changes the collection meanwhile.

/** Chunks that go to PostgreSQL in one query. */
const batch = 500

/** How many chunks a document may have more than it has. Throws `store_full`. */
type CheckRoom = (more: number) => Promise<void>

/** Throws `stale_version`. */
export async function replaceDocument(
  sessions: Sessions,
  name: string,
  embedder: Embedder,
  given: Document,
  checkRoom: CheckRoom,
): Promise<Replaced> {
  const before = await sessions.alone((session) => collectionNamed(session, name))
  const document = acceptDocument(before.spec, embedder, given)
  await checkRoom(document.chunks.length)
  await sessions.inTransaction((session) => createTablesFor(session, before, document.chunks.length))
  return sessions.inTransaction(async (session) => {
    const collection = await collectionNamed(session, name, { lock: true })
    const stored = await storedDocument(session, collection, document.id)
    const deleted = await deletedVersion(session, collection, document.id)
    checkNotStale(document.version, stored?.version ?? 0, deleted)
    if (stored?.version === document.version) return { outcome: 'unchanged', chunks: stored.chunks }
    const plan = makePlan(stored ? await chunksOf(session, collection, stored.number) : [], document.chunks)
    if (plan.missing.length) return { outcome: 'vectors_missing', hashes: plan.missing }

    const number = stored?.number ?? collection.next_document
    await putDocument(session, collection, number, document)
    const added = await addChunks(session, collection, number, plan.added)
    await keepChunks(session, collection, plan.kept)
    const removed = await removeChunks(session, collection, plan.removed)
    await count(session, collection, {
      documents: stored ? 0 : 1,
      chunks: plan.added.length - plan.removed.length,
      words: added - removed,
      next_chunk: plan.added.length,
      next_document: stored ? 0 : 1,
    })
    return { outcome: 'replaced', chunks: document.chunks.length, kept: plan.kept.length }
  })
}

/** Throws `stale_version`. */
export async function deleteDocument(
  sessions: Sessions,
  name: string,
  id: string,
  version: number,
): Promise<void> {
  await sessions.inTransaction(async (session) => {
    const collection = await collectionNamed(session, name, { lock: true })
    const schema = schemaOf(collection)
    const stored = await storedDocument(session, collection, id)
    if (stored && stored.version > version) throw stale(stored.version)
    await session.run(
      `INSERT INTO ${schema}.deletions AS there VALUES ($1, $2)
       ON CONFLICT (id) DO UPDATE SET version = greatest(there.version, excluded.version)`,
      [id, version],
    )
    if (!stored) return
    const chunks = await chunksOf(session, collection, stored.number)
    const words = await removeChunks(session, collection, chunks)
    await session.run(`DELETE FROM ${schema}.documents WHERE number = $1`, [stored.number])
    await noteRemoval(session, collection, [])
    await count(session, collection, { documents: -1, chunks: -chunks.length, words: -words })
  })
}

/** Says that something is to be forgotten: of chunks' tables, and in any case of documents and the log. */
export const noteRemoval = (session: Session, { number }: Collection, tables: number[]): Promise<unknown> =>
  session.run('INSERT INTO removals (collection, tables) VALUES ($1, $2)', [number, tables])

interface StoredDocument {
  number: number
  version: number
  chunks: number
}

async function storedDocument(
  session: Session,
  collection: Collection,
  id: string,
): Promise<StoredDocument | undefined> {
  const [row] = await session.run<StoredDocument>(
    `SELECT number, version, chunks FROM ${schemaOf(collection)}.documents WHERE id = $1`,
    [id],
  )
  return row
}

async function deletedVersion(session: Session, collection: Collection, id: string): Promise<number> {
  const [row] = await session.run<{ version: number }>(
    `SELECT version FROM ${schemaOf(collection)}.deletions WHERE id = $1`,
    [id],
  )
  return row?.version ?? 0
}

async function chunksOf(session: Session, collection: Collection, document: number): Promise<StoredChunk[]> {
  const rows = await session.run<{ id: number; hash: Buffer; text: Buffer }>(
    `SELECT id, hash, text FROM ${schemaOf(collection)}.chunks WHERE document = $1 ORDER BY id`,
    [document],
  )
  return rows.map(({ id, hash, text }) => ({ id, hash: hash.toString(), text: text.toString() }))
}

const putDocument = (session: Session, collection: Collection, number: number, document: Document) =>
  session.run(
    `INSERT INTO ${schemaOf(collection)}.documents VALUES ($1, $2, $3, $4, $5, $6)
     ON CONFLICT (number) DO UPDATE
     SET version = excluded.version, metadata = excluded.metadata, fields = excluded.fields, chunks = excluded.chunks`,
    [
      number,
      document.id,
      document.version,
      JSON.stringify(document.metadata),
      fieldsOf(document.metadata),
      document.chunks.length,
    ],
  )

const createTablesFor = async (session: Session, collection: Collection, chunks: number) => {
  const { next_chunk, vectors } = collection
  if (!chunks) return
  for (const parent of ['chunks', `vectors_${vectors}`])
    await createTables(session, collection, parent, next_chunk, next_chunk + chunks - 1)
}

/** How many words they have. */
async function addChunks(
  session: Session,
  collection: Collection,
  document: number,
  added: Plan['added'],
): Promise<number> {
  const schema = schemaOf(collection)
  const vectors = `${schema}.vectors_${collection.vectors}`
  let words = 0
  for (let from = 0; from < added.length; from += batch) {
    const some = added.slice(from, from + batch)
    const rows = some.map(({ at: { position, chunk } }, index) => {
      const plain = plainWords(chunk.text)
      words += plain.length
      return { id: collection.next_chunk + from + index, position, chunk, plain }
    })
    const ids = rows.map(({ id }) => id)
    await session.run(
      `INSERT INTO ${schema}.chunks (id, document, position, hash, locator, text, words, length)
       SELECT id, $2, position, hash, locator, text, to_tsvector('public.words', plain), length
       FROM unnest($1::bigint[], $3::int[], $4::bytea[], $5::text[], $6::bytea[], $7::text[], $8::int[])
         AS given (id, position, hash, locator, text, plain, length)`,
      [
        ids,
        document,
        rows.map(({ position }) => position),
        rows.map(({ chunk }) => Buffer.from(chunk.hash)),
        rows.map(({ chunk }) => JSON.stringify(chunk.locator)),
        rows.map(({ chunk }) => Buffer.from(chunk.text)),
        rows.map(({ plain }) => plain.join(' ')),
        rows.map(({ plain }) => plain.length),
      ],
    )
    await addVectors(
      session,
      vectors,
      ids,
      some.map(({ at }) => at.chunk.vector),
    )
    await session.run(
      `INSERT INTO ${vectors} SELECT given.id, there.vector
       FROM unnest($1::bigint[], $2::bigint[]) AS given (id, at) JOIN ${vectors} there ON there.id = given.at`,
      [ids, some.map((one) => one.from)],
    )
    // In a query of its own: the index reads the vectors of queries before.
    await session.run(`INSERT INTO ${schema}.places_${collection.vectors} SELECT unnest($1::bigint[]), $2`, [
      ids,
      document,
    ])
  }
  return words
}

/** Without those that are null. Returns the numbers of the added ones: not of those that have a vector there. */
export async function addVectors(
  session: Session,
  table: string,
  ids: number[],
  vectors: (Float32Array | null)[],
): Promise<number[]> {
  const [type] = await session.run<{ oid: number }>("SELECT 'public.vector'::regtype::oid AS oid")
  const given = ids.flatMap((id, index) => {
    const vector = vectors[index]
    return vector ? [{ id, vector }] : []
  })
  const rows = await session.run<{ id: number }>(
    `INSERT INTO ${table} SELECT * FROM unnest($1::bigint[], $2::public.vector[]) ON CONFLICT DO NOTHING RETURNING id`,
    [
      given.map(({ id }) => id),
      vectorsBytes(
        type?.oid as number,
        given.map(({ vector }) => vector),
      ),
    ],
  )
  return rows.map(({ id }) => id)
}

const keepChunks = (session: Session, collection: Collection, kept: Plan['kept']): Promise<unknown> =>
  session.run(
    `UPDATE ${schemaOf(collection)}.chunks there SET position = given.position, locator = given.locator
     FROM unnest($1::bigint[], $2::int[], $3::text[]) AS given (id, position, locator)
     WHERE there.id = given.id AND (there.position, there.locator) IS DISTINCT FROM (given.position, given.locator)`,
    [
      kept.map(({ id }) => id),
      kept.map(({ at }) => at.position),
      kept.map(({ at }) => JSON.stringify(at.chunk.locator)),
    ],
  )

/** How many words they had. */
async function removeChunks(
  session: Session,
  collection: Collection,
  removed: StoredChunk[],
): Promise<number> {
  if (!removed.length) return 0
  const schema = schemaOf(collection)
  const ids = removed.map(({ id }) => id)
  const gone = await session.run<{ length: number }>(
    `DELETE FROM ${schema}.chunks WHERE id = ANY ($1::bigint[]) RETURNING length`,
    [ids],
  )
  const { vectors, aside_vectors } = collection
  for (const set of [vectors, aside_vectors].filter((one) => one !== null)) {
    await session.run(`DELETE FROM ${schema}.places_${set} WHERE id = ANY ($1::bigint[])`, [ids])
    const out = await session.run(
      `DELETE FROM ${schema}.vectors_${set} WHERE id = ANY ($1::bigint[]) RETURNING id`,
      [ids],
    )
    if (set === aside_vectors)
      await session.run('UPDATE collections SET aside_given = aside_given - $2 WHERE number = $1', [
        collection.number,
        out.length,
      ])
  }
  await noteRemoval(session, collection, [...new Set(ids.map(tableOf))])
  return gone.reduce((sum, { length }) => sum + length, 0)
}

type Counts = Partial<Record<'documents' | 'chunks' | 'words' | 'next_chunk' | 'next_document', number>>

const count = (session: Session, { number }: Collection, more: Counts): Promise<unknown> =>
  session.run(
    `UPDATE collections SET generation = generation + 1, ${Object.keys(more)
      .map((field, index) => `${field} = ${field} + $${index + 2}`)
      .join()} WHERE number = $1`,
    [number, ...Object.values(more)],
  )

import { chunkName, idInName } from '../chunk-name.ts'
import { StoreError } from '../errors.ts'
import { acceptAside, acceptEmbedder, sameEmbedder } from '../input.ts'
import type { Aside, AsideVector, Embedder, LackingChunk, Used } from '../store.ts'
import { addVectors, noteRemoval } from './changes.ts'
import { type Collection, collectionNamed, createTables, createVectors, schemaOf } from './schema.ts'
import type { Session, Sessions } from './sessions.ts'

// The vectors of another embedder: tables of their own, with their own index, which then take the place of the present ones.

/** Throws `embedder_mismatch`. */
export async function putAside(
  sessions: Sessions,
  name: string,
  given: Embedder,
  vectors: AsideVector[],
  most: number,
): Promise<Aside> {
  const embedder = acceptEmbedder(given)
  const accepted = acceptAside(embedder, vectors, most)
  return sessions.inTransaction(async (session) => {
    const collection = await collectionNamed(session, name, { lock: true })
    const all = collection.chunks
    if (sameEmbedder(collection.spec.embedder, embedder)) return { chunks: [], lacking: 0, all }
    let set = isAside(collection, embedder) ? collection.aside_vectors : null
    let has = set === null ? 0 : collection.aside_given
    if (set === null) {
      // Of somebody who has not heard that it was given up.
      if (accepted.length)
        throw new StoreError('embedder_mismatch', `No vectors of ${embedder.name} are being made`)
      set = await begin(session, collection, embedder)
    }
    has += await add(session, collection, set, accepted)
    await session.run('UPDATE collections SET aside_given = $2 WHERE number = $1', [collection.number, has])
    const lacking = all - has
    return { chunks: lacking ? await lackingChunks(session, collection, set, most) : [], lacking, all }
  })
}

/** Gives the collection this embedder, and drops what is aside. No chunk may lack a vector. */
export const useEmbedder = (sessions: Sessions, name: string, given: Embedder): Promise<Used> => {
  const embedder = acceptEmbedder(given)
  return sessions.inTransaction(async (session) => {
    const collection = await collectionNamed(session, name, { lock: true })
    if (sameEmbedder(collection.spec.embedder, embedder)) {
      await giveUp(session, collection)
      return { outcome: 'used' }
    }
    const has = isAside(collection, embedder) ? collection.aside_given : 0
    if (has < collection.chunks) return { outcome: 'vectors_missing', lacking: collection.chunks - has }
    // A collection without chunks may change without any preparation.
    const set = isAside(collection, embedder)
      ? (collection.aside_vectors as number)
      : await begin(session, collection, embedder)
    await session.run(
      `UPDATE collections SET spec = $2, vectors = $3, generation = generation + 1,
         aside = NULL, aside_vectors = NULL, aside_given = 0 WHERE number = $1`,
      [collection.number, JSON.stringify({ ...collection.spec, embedder }), set],
    )
    // The former tables go when what was removed is forgotten: searches that are under way still read them.
    await noteRemoval(session, collection, [])
    return { outcome: 'used' }
  })
}

async function giveUp(session: Session, collection: Collection): Promise<void> {
  if (collection.aside_vectors === null) return
  await session.run(
    'UPDATE collections SET aside = NULL, aside_vectors = NULL, aside_given = 0 WHERE number = $1',
    [collection.number],
  )
  await noteRemoval(session, collection, [])
}

/** The number of the new tables. */
async function begin(session: Session, collection: Collection, embedder: Embedder): Promise<number> {
  await giveUp(session, collection)
  const { number, next_vectors: set, next_chunk } = collection
  await createVectors(session, collection, set, embedder)
  if (next_chunk > 1) await createTables(session, collection, `vectors_${set}`, 1, next_chunk - 1)
  await session.run(
    'UPDATE collections SET aside = $2, aside_vectors = $3, aside_given = 0, next_vectors = $3 + 1 WHERE number = $1',
    [number, JSON.stringify(embedder), set],
  )
  return set
}

/** How many were added. */
async function add(
  session: Session,
  collection: Collection,
  set: number,
  vectors: AsideVector[],
): Promise<number> {
  if (!vectors.length) return 0
  const schema = schemaOf(collection)
  const rows = await session.run<{ id: number; document: number; text: Buffer }>(
    `SELECT id, document, text FROM ${schema}.chunks WHERE id = ANY ($1::bigint[])`,
    [vectors.map(({ chunk }) => idInName(chunk))],
  )
  // Not those that are gone, or have another text.
  const names = new Set(rows.map(({ id, text }) => chunkName(id, text.toString())))
  const theirs = vectors.filter(({ chunk }) => names.has(chunk))
  const ids = theirs.map(({ chunk }) => idInName(chunk))
  if (collection.next_chunk > 1)
    await createTables(session, collection, `vectors_${set}`, 1, collection.next_chunk - 1)
  const added = new Set(
    await addVectors(
      session,
      `${schema}.vectors_${set}`,
      ids,
      theirs.map(({ vector }) => vector),
    ),
  )
  const places = rows.filter(({ id }) => added.has(id))
  await session.run(`INSERT INTO ${schema}.places_${set} SELECT * FROM unnest($1::bigint[], $2::bigint[])`, [
    places.map(({ id }) => id),
    places.map(({ document }) => document),
  ])
  return added.size
}

async function lackingChunks(
  session: Session,
  collection: Collection,
  set: number,
  most: number,
): Promise<LackingChunk[]> {
  const schema = schemaOf(collection)
  const some = (where: string) =>
    session.run<{ id: number; text: Buffer }>(
      `SELECT id, text FROM ${schema}.chunks chunk WHERE ${where} ORDER BY id LIMIT $1`,
      [most],
    )
  const places = `${schema}.places_${set}`
  // They come in the order of their numbers, so that mostly all behind the last one lack a vector: this needs no search.
  const next = await some(`id > (SELECT coalesce(max(id), 0) FROM ${places})`)
  const rows = next.length
    ? next
    : await some(`NOT EXISTS (SELECT FROM ${places} there WHERE there.id = chunk.id)`)
  return rows.map(({ id, text }) => ({ chunk: chunkName(id, text.toString()), text: text.toString() }))
}

const isAside = ({ aside }: Collection, embedder: Embedder): boolean =>
  aside !== null && sameEmbedder(aside, embedder)

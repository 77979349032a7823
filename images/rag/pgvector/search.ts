import { depthOf, fused, partsOf, type Ranked, ranked } from '../fusion.ts'
import { acceptQuery } from '../input.ts'
import type { Filter, Hit, SearchAnswer, SearchQuery } from '../store.ts'
import { best, type Scored } from '../top.ts'
import { type Allowed, filterSql } from './filter.ts'
import { type Collection, collectionNamed, isIndexed, schemaOf, vectorOf } from './schema.ts'
import { type Session, type Sessions, vectorBytes } from './sessions.ts'
import type { WordSearch } from './word-search.ts'

// One search of a collection, of which all queries see the same moment.

/** Of the index, which are then compared exactly. */
const leastCandidates = 200
const candidatesPerHit = 4
/** pgvector's bound of `hnsw.ef_search`; beyond, the index goes on by itself. */
const mostAtOnce = 1_000
/** How many elements of the index a search with a filter looks at. */
const mostLookedAt = 40_000

/** Of vectors with length 1. From their distance, which tells near ones apart that have the same product in float32. */
const cosine = '1 - (vector <-> $1::vector) ^ 2 / 2'

export interface SearchSettings {
  /** So many chunks and fewer are all compared. */
  exactUpTo: number
}

/** Throws `invalid_input`, `invalid_filter` and `embedder_mismatch`. */
export const search = (
  sessions: Sessions,
  name: string,
  query: SearchQuery,
  wordsOf: (collection: number) => WordSearch,
  settings: SearchSettings,
): Promise<SearchAnswer> =>
  sessions.atOneMoment(async (session) => {
    const collection = await collectionNamed(session, name)
    const accepted = acceptQuery(collection.spec, query)
    const allowed = query.filter ? await allowedBy(session, collection, query.filter) : null
    const depth = depthOf(accepted)
    const { k, text, vector } = accepted
    const byVector = vector && ranked(await nearest(session, collection, vector, allowed, k, depth, settings))
    const byText =
      text === null
        ? null
        : ranked(await wordsOf(collection.number).search(session, collection, text, allowed, depth))
    const chosen = fused(byVector, byText, k)
    return {
      hits: await read(session, collection, chosen, byVector, byText),
      generation: collection.generation,
    }
  })

async function allowedBy(session: Session, collection: Collection, filter: Filter): Promise<Allowed> {
  const { sql, values } = filterSql(filter, collection.spec.metadata_schema)
  const rows = await session.run<{ number: number; chunks: number }>(
    `SELECT number, chunks FROM ${schemaOf(collection)}.documents WHERE ${sql}`,
    values,
  )
  return {
    documents: rows.map(({ number }) => number),
    chunks: rows.reduce((sum, { chunks }) => sum + chunks, 0),
  }
}

/** The chunks with the nearest vectors, best first: as many as `depth`. */
async function nearest(
  session: Session,
  collection: Collection,
  vector: Float32Array,
  allowed: Allowed | null,
  k: number,
  depth: number,
  { exactUpTo }: SearchSettings,
): Promise<Scored[]> {
  const chunks = allowed?.chunks ?? collection.chunks
  const bytes = vectorBytes(vector)
  if (chunks > exactUpTo && isIndexed(collection.spec.embedder)) {
    const found = await byIndex(
      session,
      collection,
      bytes,
      allowed,
      Math.max(leastCandidates, k * candidatesPerHit),
    )
    // A filter may leave too few of what the index looks at.
    if (found.length >= Math.min(depth, chunks)) return best(found, depth)
  }
  return exactly(session, collection, bytes, allowed, depth)
}

async function byIndex(
  session: Session,
  collection: Collection,
  vector: Buffer,
  allowed: Allowed | null,
  candidates: number,
): Promise<Scored[]> {
  const { vectors } = collection
  const { dimensions } = collection.spec.embedder
  const schema = schemaOf(collection)
  // Without statistics, PostgreSQL might read whole tables.
  await session.run(
    `SELECT set_config('hnsw.ef_search', $1, true), set_config('hnsw.iterative_scan', 'relaxed_order', true),
       set_config('hnsw.max_scan_tuples', $2, true), set_config('enable_seqscan', 'off', true)`,
    [String(Math.min(candidates, mostAtOnce)), String(mostLookedAt)],
  )
  const found = await session.run<Scored>(
    `WITH candidates AS MATERIALIZED (
       SELECT id FROM ${schema}.places_${vectors}
       ${allowed ? 'WHERE document = ANY ($3::bigint[])' : ''}
       ORDER BY ${vectorOf(schema, vectors)}(id)::halfvec(${dimensions}) <-> $1::vector::halfvec(${dimensions}) LIMIT $2
     )
     SELECT id AS slot, ${cosine} AS score FROM candidates JOIN ${schema}.vectors_${vectors} USING (id)`,
    [vector, candidates, ...(allowed ? [allowed.documents] : [])],
  )
  await session.run("SELECT set_config('enable_seqscan', 'on', true)")
  return found
}

const exactly = (
  session: Session,
  collection: Collection,
  vector: Buffer,
  allowed: Allowed | null,
  depth: number,
): Promise<Scored[]> => {
  const schema = schemaOf(collection)
  const its = `_${collection.vectors}`
  return session.run<Scored>(
    `SELECT id AS slot, ${cosine} AS score FROM ${schema}.vectors${its}
     ${allowed ? `JOIN ${schema}.places${its} USING (id) WHERE document = ANY ($3::bigint[])` : ''}
     ORDER BY vector <-> $1::vector, id LIMIT $2`,
    [vector, depth, ...(allowed ? [allowed.documents] : [])],
  )
}

interface HitRow {
  id: number
  document_id: string
  version: number
  metadata: string
  position: number
  hash: Buffer
  text: Buffer
  locator: string
}

/** In the order of the chosen. */
async function read(
  session: Session,
  collection: Collection,
  chosen: Scored[],
  byVector: Ranked | null,
  byText: Ranked | null,
): Promise<Hit[]> {
  const schema = schemaOf(collection)
  const rows = await session.run<HitRow>(
    `SELECT chunk.id, document.id AS document_id, version, metadata, position, hash, text, locator
     FROM ${schema}.chunks chunk JOIN ${schema}.documents document ON document.number = chunk.document
     WHERE chunk.id = ANY ($1::bigint[])`,
    [chosen.map(({ slot }) => slot)],
  )
  const byId = new Map(rows.map((row) => [row.id, row]))
  return chosen.map(({ slot, score }) => {
    const row = byId.get(slot) as HitRow
    return {
      document_id: row.document_id,
      version: row.version,
      metadata: JSON.parse(row.metadata) as Hit['metadata'],
      position: row.position,
      hash: row.hash.toString(),
      text: row.text.toString(),
      locator: JSON.parse(row.locator) as Hit['locator'],
      score,
      parts: partsOf(slot, byVector, byText),
    }
  })
}

import { collectionNotFound } from '../errors.ts'
import type { CollectionSpec, Embedder } from '../store.ts'
import type { Session } from './sessions.ts'

// The tables. Each collection has a schema of its own. Chunks and vectors are in tables of 8,192 chunks each by their numbers: what
// is removed is forgotten by writing the others of its tables anew (forget.ts), however large the collection is.
//
// HNSW indexes a function of the chunk's number, which reads the vector. So the vectors' tables can be written anew without a new
// index; pgvector itself clears the removed vectors in the index, when this is vacuumed.

export const chunksPerTable = 8_192
/** pgvector's HNSW takes no more, in half precision. */
const mostIndexed = 4_000

export const isIndexed = ({ dimensions }: Embedder): boolean => dimensions <= mostIndexed

// `words`: words as they are, by Porter's stems, which the other engine uses as well. The parser gets letters, digits and spaces.
const common = `
  CREATE EXTENSION IF NOT EXISTS vector;
  CREATE TEXT SEARCH DICTIONARY porter (TEMPLATE = snowball, LANGUAGE = porter);
  CREATE TEXT SEARCH CONFIGURATION words (COPY = simple);
  ALTER TEXT SEARCH CONFIGURATION words
    ALTER MAPPING FOR asciiword, word, numword, asciihword, hword, numhword, hword_asciipart, hword_part, hword_numpart
    WITH porter;
  CREATE TABLE collections (
    number int GENERATED ALWAYS AS IDENTITY PRIMARY KEY, name text NOT NULL UNIQUE, spec text NOT NULL,
    generation bigint NOT NULL DEFAULT 1, next_chunk bigint NOT NULL DEFAULT 1, next_document bigint NOT NULL DEFAULT 1,
    documents bigint NOT NULL DEFAULT 0, chunks bigint NOT NULL DEFAULT 0, words bigint NOT NULL DEFAULT 0,
    vectors int NOT NULL DEFAULT 1, next_vectors int NOT NULL DEFAULT 2,
    aside text, aside_vectors int, aside_given bigint NOT NULL DEFAULT 0
  );
  CREATE TABLE removals (
    number bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY, collection int NOT NULL, tables int[] NOT NULL,
    removed_by xid8 NOT NULL DEFAULT pg_current_xact_id()
  );
`

/** Makes what all collections share, once. */
export async function createCommon(session: Session): Promise<void> {
  const [there] = await session.run("SELECT to_regclass('public.collections') IS NOT NULL AS yes")
  if (!there?.['yes']) await session.run(common)
}

/** A collection's record. */
export interface Collection {
  number: number
  name: string
  spec: CollectionSpec
  generation: number
  next_chunk: number
  next_document: number
  documents: number
  chunks: number
  /** How many words all chunks have. */
  words: number
  /** The number of the tables of its vectors. */
  vectors: number
  next_vectors: number
  aside: Embedder | null
  aside_vectors: number | null
  aside_given: number
}

/** Throws `collection_not_found`. `lock`: nobody changes it until the transaction ends. */
export async function collectionNamed(
  session: Session,
  name: string,
  { lock = false } = {},
): Promise<Collection> {
  const found = await findCollection(session, name, { lock })
  if (!found) throw collectionNotFound(name)
  return found
}

export async function findCollection(
  session: Session,
  name: string,
  { lock = false } = {},
): Promise<Collection | null> {
  type Stored = Omit<Collection, 'spec' | 'aside'> & { spec: string; aside: string | null }
  const [row] = await session.run<Stored>(
    `SELECT * FROM collections WHERE name = $1 ${lock ? 'FOR UPDATE' : ''}`,
    [name],
  )
  return row
    ? {
        ...row,
        spec: JSON.parse(row.spec) as CollectionSpec,
        aside: row.aside === null ? null : (JSON.parse(row.aside) as Embedder),
      }
    : null
}

export const schemaOf = ({ number }: Pick<Collection, 'number'>): string => `c${number}`

// Texts as bytes, since PostgreSQL's texts have no zeros. Not compressed: what is there is found, and what is gone is not.
export async function createCollectionTables(
  session: Session,
  name: string,
  spec: CollectionSpec,
): Promise<void> {
  const [row] = await session.run<{ number: number }>(
    'INSERT INTO collections (name, spec) VALUES ($1, $2) RETURNING number',
    [name, JSON.stringify(spec)],
  )
  const collection = { number: row?.number as number }
  const schema = schemaOf(collection)
  await session.run(`
    CREATE SCHEMA ${schema};
    CREATE TABLE ${schema}.documents (
      number bigint PRIMARY KEY, id text NOT NULL UNIQUE, version bigint NOT NULL, metadata text NOT NULL,
      fields jsonb NOT NULL, chunks int NOT NULL
    );
    CREATE TABLE ${schema}.deletions (id text PRIMARY KEY, version bigint NOT NULL);
    CREATE TABLE ${schema}.chunks (
      id bigint PRIMARY KEY, document bigint NOT NULL, position int NOT NULL, hash bytea NOT NULL, locator text NOT NULL,
      text bytea STORAGE EXTERNAL NOT NULL, words tsvector NOT NULL, length int NOT NULL
    ) PARTITION BY RANGE (id);
    CREATE INDEX ON ${schema}.chunks (document);
    CREATE INDEX ON ${schema}.chunks USING gin (words) WITH (fastupdate = off);
  `)
  await createVectors(session, collection, 1, spec.embedder)
}

/** Tables for vectors of an embedder. */
export async function createVectors(
  session: Session,
  collection: Pick<Collection, 'number'>,
  vectors: number,
  embedder: Embedder,
): Promise<void> {
  const schema = schemaOf(collection)
  const { dimensions } = embedder
  await session.run(`
    CREATE TABLE ${schema}.vectors_${vectors} (id bigint PRIMARY KEY, vector vector(${dimensions}) STORAGE EXTERNAL NOT NULL)
      PARTITION BY RANGE (id);
    CREATE TABLE ${schema}.places_${vectors} (id bigint PRIMARY KEY, document bigint NOT NULL);
    CREATE INDEX ON ${schema}.places_${vectors} (document);
  `)
  if (!isIndexed(embedder)) return
  // Immutable: the vector of a number never changes. Dear, so that no plan calls it for all rows instead of using the index.
  await session.run(`
    CREATE FUNCTION ${vectorOf(schema, vectors)}(bigint) RETURNS public.halfvec(${dimensions})
      LANGUAGE sql IMMUTABLE STRICT COST 100000
      AS 'SELECT vector::public.halfvec(${dimensions}) FROM ${schema}.vectors_${vectors} WHERE id = $1';
    CREATE INDEX ON ${schema}.places_${vectors} USING hnsw
      ((${vectorOf(schema, vectors)}(id)::public.halfvec(${dimensions})) public.halfvec_l2_ops);
  `)
}

export const vectorOf = (schema: string, vectors: number): string => `${schema}.vector_${vectors}`

export const dropVectors = (session: Session, collection: Pick<Collection, 'number'>, vectors: number) => {
  const schema = schemaOf(collection)
  return session.run(`
    DROP TABLE IF EXISTS ${schema}.places_${vectors};
    DROP FUNCTION IF EXISTS ${vectorOf(schema, vectors)}(bigint);
    DROP TABLE IF EXISTS ${schema}.vectors_${vectors};
  `)
}

/** The number of the table that has a chunk. */
export const tableOf = (id: number): number => Math.floor(id / chunksPerTable)

/** Makes the tables for the chunks from one number up to another, where they are missing, in `chunks` or `vectors_…`. */
export async function createTables(
  session: Session,
  collection: Pick<Collection, 'number'>,
  parent: string,
  from: number,
  upTo: number,
): Promise<void> {
  const schema = schemaOf(collection)
  // A table that is made locks all of them for a moment: not if it is there.
  const missing = await session.run<{ number: number }>(
    `SELECT number FROM generate_series($2::bigint, $3::bigint) number WHERE to_regclass($1 || number) IS NULL`,
    [`${schema}.${parent}_t`, tableOf(from), tableOf(upTo)],
  )
  for (const { number } of missing)
    await session.run(
      `CREATE TABLE ${schema}.${parent}_t${number} PARTITION OF ${schema}.${parent}
       FOR VALUES FROM (${number * chunksPerTable}) TO (${(number + 1) * chunksPerTable})`,
    )
}

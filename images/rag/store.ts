// What a retrieval store is, for every engine and client. test/support/rag/conformance.ts says how each has to behave.

/** The model that makes a collection's vectors. Vectors of two models cannot be compared, so a collection pins one. */
export interface Embedder {
  name: string
  /** Of the model's files or version: the same name may stand for another model later. */
  hash: string
  dimensions: number
}

export type FieldType = 'string' | 'number' | 'boolean'
/** The fields of documents by which searches may filter. */
export type MetadataSchema = Record<string, FieldType>
export type FieldValue = string | number | boolean
export type Metadata = Record<string, FieldValue>

export interface CollectionSpec {
  embedder: Embedder
  metadata_schema: MetadataSchema
}

export interface Chunk {
  /** The caller's hash of the text: chunks of one document with the same hash have the same text. */
  hash: string
  text: string
  /** Where the chunk is in its document (page, line, pointer), given back as it came. */
  locator: Record<string, unknown>
  /** Any length but 0. Null: the document has this chunk already, and its vector is kept. */
  vector: Float32Array | null
}

export interface Document {
  id: string
  /** The store keeps the higher of two versions, in whatever order they come. */
  version: number
  metadata: Metadata
  /** In the order of the document. */
  chunks: Chunk[]
}

export type Replaced =
  | { outcome: 'replaced'; chunks: number; kept: number }
  /** The store has this version. */
  | { outcome: 'unchanged'; chunks: number }
  /** Nothing was changed: these chunks came without a vector, and the document has none with their hashes. */
  | { outcome: 'vectors_missing'; hashes: string[] }

/** Values that a field may have, or conditions that all have to hold. A document without the field meets `exists: false` alone. */
export interface Condition {
  eq?: FieldValue
  in?: FieldValue[]
  gt?: number
  gte?: number
  lt?: number
  lte?: number
  exists?: boolean
}
/** All fields' conditions have to hold. A plain value stands for `eq`. */
export type Filter = Record<string, FieldValue | Condition>

export interface SearchQuery {
  mode: 'vector' | 'text' | 'hybrid'
  /** How many hits at most. */
  k: number
  /** Words of a user, in no query language, those such as "what is the" left out. For `text` and `hybrid`. */
  text?: string
  /** For `vector` and `hybrid`, with the embedder that made it. */
  vector?: Float32Array
  embedder?: Embedder
  filter?: Filter
}

/** A chunk without a vector of the embedder that the collection is to have. */
export interface LackingChunk {
  /** Its name with this text: a vector that comes later is not taken for another text. */
  chunk: string
  text: string
}

export interface AsideVector {
  /** As a LackingChunk has it. */
  chunk: string
  vector: Float32Array
}

/** How far the vectors of another embedder are. */
export interface Aside {
  /** Some of the chunks that lack one. */
  chunks: LackingChunk[]
  lacking: number
  all: number
}

export type Used =
  /** The collection has this embedder, and no vectors aside. */
  | { outcome: 'used' }
  /** Nothing was changed: so many chunks have no vector of this embedder. */
  | { outcome: 'vectors_missing'; lacking: number }

/** The place of a hit in one of the lists that were searched; the first is 1. */
export interface ScorePart {
  score: number
  rank: number
}

export interface Hit {
  document_id: string
  version: number
  metadata: Metadata
  /** The chunk's place in its document; the first is 0. */
  position: number
  hash: string
  text: string
  locator: Record<string, unknown>
  /** Higher is better: the cosine (`vector`), BM25 (`text`), or the sum of 1 / (60 + rank) (`hybrid`). */
  score: number
  /** Null: the chunk is not among the best of that list. */
  parts: { vector: ScorePart | null; text: ScorePart | null }
}

export interface SearchAnswer {
  /** Best first. */
  hits: Hit[]
  generation: number
}

export interface CollectionStats extends CollectionSpec {
  name: string
  documents: number
  chunks: number
  /** Of the collection's files, without its snapshot. */
  bytes: number
  /** Grows with each change. */
  generation: number
  /** The embedder whose vectors are being made aside. Null: there is none. */
  aside: Embedder | null
}

export interface Snapshot {
  /** Relative to the store's folder. */
  path: string
  bytes: number
  generation: number
}

export interface Health {
  ready: boolean
  /** Why the store is not ready; null if it is. */
  reason: string | null
}

/** Throws StoreError. Every call may be repeated: what is done already is success. */
export interface Store {
  /** Throws `collection_exists` if there is one of this name with another embedder or metadata schema. */
  createCollection(name: string, spec: CollectionSpec): Promise<CollectionStats>
  /** Removes the collection with its snapshot. */
  dropCollection(name: string): Promise<void>
  /**
   * Puts a document in the place of its former version, all chunks at once: a search finds the one or the other. Throws
   * `embedder_mismatch`, and `stale_version` if a higher version is there, or this version or a higher one was deleted.
   */
  replaceDocument(collection: string, embedder: Embedder, document: Document): Promise<Replaced>
  /**
   * Removes a document, and its texts and vectors from all files of the collection but its snapshot. `version` is the
   * highest that it may have; a version up to this one will not come back. Throws `stale_version` if a higher one is there.
   */
  deleteDocument(collection: string, id: string, version: number): Promise<void>
  search(collection: string, query: SearchQuery): Promise<SearchAnswer>
  /**
   * Takes vectors of another embedder, keeps them aside, and names up to `most` chunks that still lack one. Without vectors it
   * begins, and drops those of a third embedder. What changes in the collection meanwhile lacks vectors again. Nothing lacks
   * one of the collection's own embedder. Throws `embedder_mismatch` for vectors of an embedder with which it has not begun.
   */
  putAside(collection: string, embedder: Embedder, vectors: AsideVector[], most: number): Promise<Aside>
  /**
   * Has the collection use this embedder from now on: its vectors come from aside, if none is missing, all at once for
   * searches. If it is the present one, what is aside is dropped.
   */
  useEmbedder(collection: string, embedder: Embedder): Promise<Used>
  stats(collection: string): Promise<CollectionStats>
  /** Writes a consistent copy of the collection in the place of its former one. */
  snapshot(collection: string): Promise<Snapshot>
  /** Answers at once, whatever else the store does. */
  health(): Promise<Health>
}

/** What a store takes at most. */
export const limits = {
  k: 1_000,
  dimensions: 4_096,
  chunksPerDocument: 50_000,
  asideChunks: 1_000,
  /** UTF-16 units, as for all texts below. */
  chunkText: 32_768,
  queryText: 32_768,
  /** Distinct words of a query's text; the others are ignored. */
  queryWords: 64,
  /** As JSON. */
  locator: 4_096,
  fields: 32,
  fieldText: 512,
  filterValues: 1_000,
}

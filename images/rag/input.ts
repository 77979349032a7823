import { invalid, StoreError } from './errors.ts'
import { checkMetadata } from './filter.ts'
import {
  type AsideVector,
  type Chunk,
  type CollectionSpec,
  type Document,
  type Embedder,
  limits,
} from './store.ts'
import type { SearchQuery } from './store.ts'
import { normalised } from './vectors.ts'

// What callers give, checked: by every engine alike, whether it came over HTTP or not.

// Part of a file's name.
const collectionName = /^[a-z0-9][a-z0-9_-]{0,62}$/
const documentId = /^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$/
const fieldName = /^[A-Za-z_][A-Za-z0-9_]{0,62}$/
const fieldTypes: readonly unknown[] = ['string', 'number', 'boolean']
const modes: readonly unknown[] = ['vector', 'text', 'hybrid']

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === 'object' && value !== null && !Array.isArray(value) && !ArrayBuffer.isView(value)
const isText = (value: unknown, most: number): value is string =>
  typeof value === 'string' && value.length > 0 && value.length <= most
const isCount = (value: unknown, least: number, most: number): value is number =>
  Number.isSafeInteger(value) && (value as number) >= least && (value as number) <= most

export function checkCollectionName(name: unknown): asserts name is string {
  if (typeof name !== 'string' || !collectionName.test(name))
    throw invalid(
      '/name',
      'A collection’s name has 1 to 63 of a-z, 0-9, _ and -, and begins with a letter or digit',
    )
}

export function checkDocumentId(id: unknown): asserts id is string {
  if (typeof id !== 'string' || !documentId.test(id))
    throw invalid(
      '/id',
      'A document’s id has 1 to 128 of A-Z, a-z, 0-9, . _ : and -, and begins with a letter or digit',
    )
}

export function checkVersion(version: unknown): asserts version is number {
  if (!isCount(version, 1, Number.MAX_SAFE_INTEGER))
    throw invalid('/version', 'A version is a whole number from 1 on')
}

export function checkSpec(spec: CollectionSpec): void {
  if (!isObject(spec)) throw invalid('', 'A collection has an embedder and a metadata schema')
  checkEmbedder(spec.embedder)
  if (!isObject(spec.metadata_schema))
    throw invalid('/metadata_schema', 'A metadata schema has types by fields')
  const fields = Object.entries(spec.metadata_schema)
  if (fields.length > limits.fields)
    throw invalid('/metadata_schema', `There are at most ${limits.fields} fields`)
  for (const [field, type] of fields) {
    // Every object has `constructor` and the like: such a field would exist in all documents.
    if (!fieldName.test(field) || field in {})
      throw invalid(
        '/metadata_schema',
        'A field’s name has 1 to 63 letters, digits and _, and begins with no digit',
      )
    if (!fieldTypes.includes(type))
      throw invalid(`/metadata_schema/${field}`, 'A field is a string, number or boolean')
  }
}

export function checkEmbedder(embedder: unknown): asserts embedder is Embedder {
  if (!isObject(embedder)) throw invalid('/embedder', 'An embedder has a name, a hash and dimensions')
  if (!isText(embedder['name'], 256)) throw invalid('/embedder/name', 'A name has 1 to 256 characters')
  if (!isText(embedder['hash'], 256)) throw invalid('/embedder/hash', 'A hash has 1 to 256 characters')
  if (!isCount(embedder['dimensions'], 1, limits.dimensions))
    throw invalid('/embedder/dimensions', `Dimensions are 1 to ${limits.dimensions}`)
}

export const sameEmbedder = (a: Embedder, b: Embedder): boolean =>
  a.name === b.name && a.hash === b.hash && a.dimensions === b.dimensions

/** The embedder without any other field. */
export function acceptEmbedder(embedder: unknown): Embedder {
  checkEmbedder(embedder)
  const { name, hash, dimensions } = embedder
  return { name, hash, dimensions }
}

/** Throws `embedder_mismatch` unless this one is the collection's. */
function checkSameEmbedder(given: unknown, { embedder: pinned }: CollectionSpec): void {
  checkEmbedder(given)
  if (!sameEmbedder(given, pinned))
    throw new StoreError(
      'embedder_mismatch',
      `The collection’s vectors are of ${pinned.name} (${pinned.hash}, ${pinned.dimensions} dimensions), and these of ${given.name} (${given.hash}, ${given.dimensions})`,
    )
}

/** The document with vectors of length 1. */
export function acceptDocument(spec: CollectionSpec, embedder: Embedder, document: Document): Document {
  checkSameEmbedder(embedder, spec)
  if (!isObject(document)) throw invalid('', 'A document has an id, a version, metadata and chunks')
  const { id, version, metadata, chunks } = document
  checkDocumentId(id)
  checkVersion(version)
  if (!isObject(metadata)) throw invalid('/metadata', 'Metadata has values by fields')
  checkMetadata(metadata, spec.metadata_schema)
  if (!Array.isArray(chunks)) throw invalid('/chunks', 'A document has a list of chunks')
  if (chunks.length > limits.chunksPerDocument)
    throw new StoreError('too_large', `A document has at most ${limits.chunksPerDocument} chunks`, {
      pointer: '/chunks',
    })
  return {
    id,
    version,
    metadata: { ...metadata },
    chunks: chunks.map((chunk, index) => acceptChunk(spec, chunk, `/chunks/${index}`)),
  }
}

function acceptChunk({ embedder }: CollectionSpec, chunk: Chunk, pointer: string): Chunk {
  if (!isObject(chunk)) throw invalid(pointer, 'A chunk has a hash, a text, a locator and a vector')
  const { hash, text, locator, vector } = chunk
  if (!isText(hash, 128)) throw invalid(`${pointer}/hash`, 'A hash has 1 to 128 characters')
  if (!isText(text, limits.chunkText))
    throw invalid(`${pointer}/text`, `A text has 1 to ${limits.chunkText} characters`)
  if (!isObject(locator) || JSON.stringify(locator).length > limits.locator)
    throw invalid(`${pointer}/locator`, `A locator is an object of at most ${limits.locator} characters`)
  return {
    hash,
    text,
    locator,
    vector: vector === null ? null : acceptVector(vector, embedder, `${pointer}/vector`),
  }
}

function acceptVector(vector: unknown, { dimensions }: Embedder, pointer: string): Float32Array {
  if (!(vector instanceof Float32Array) || vector.length !== dimensions)
    throw invalid(pointer, `A vector has ${dimensions} numbers`)
  const unit = normalised(vector)
  if (!unit) throw invalid(pointer, 'A vector has finite numbers, and not all are 0')
  return unit
}

const chunkName = /^[1-9]\d{0,15}-[0-9a-f]{32}$/

/** Vectors of length 1. */
export function acceptAside(embedder: Embedder, vectors: AsideVector[], most: number): AsideVector[] {
  if (!isCount(most, 0, limits.asideChunks)) throw invalid('/most', `most is 0 to ${limits.asideChunks}`)
  if (!Array.isArray(vectors) || vectors.length > limits.asideChunks)
    throw invalid('/vectors', `This is a list of at most ${limits.asideChunks} vectors`)
  return vectors.map((one: unknown, index) => {
    const pointer = `/vectors/${index}`
    if (!isObject(one)) throw invalid(pointer, 'This has a chunk and a vector')
    const { chunk, vector } = one
    if (typeof chunk !== 'string' || !chunkName.test(chunk))
      throw invalid(`${pointer}/chunk`, 'The name does not have the form of the store’s names of chunks')
    return { chunk, vector: acceptVector(vector, embedder, `${pointer}/vector`) }
  })
}

/** What a search looks for. Null: the mode has no such part. */
export interface AcceptedQuery {
  k: number
  text: string | null
  /** Of length 1. */
  vector: Float32Array | null
}

export function acceptQuery(spec: CollectionSpec, query: SearchQuery): AcceptedQuery {
  if (!isObject(query)) throw invalid('', 'A search has a mode and k')
  const { mode, k, text, vector, embedder, filter } = query
  if (!modes.includes(mode)) throw invalid('/mode', 'A mode is vector, text or hybrid')
  if (!isCount(k, 1, limits.k)) throw invalid('/k', `k is 1 to ${limits.k}`)
  if (filter !== undefined && !isObject(filter))
    throw new StoreError('invalid_filter', 'A filter has conditions by fields', { pointer: '/filter' })
  const accepted: AcceptedQuery = { k, text: null, vector: null }
  if (mode !== 'vector') {
    if (!isText(text, limits.queryText) || !text.trim())
      throw invalid('/text', `This mode needs a text of at most ${limits.queryText} characters`)
    accepted.text = text
  }
  if (mode !== 'text') {
    checkSameEmbedder(embedder, spec)
    accepted.vector = acceptVector(vector, spec.embedder, '/vector')
  }
  return accepted
}

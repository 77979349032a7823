import { invalid } from './errors.ts'
import type { AsideVector, Chunk, Document, Embedder, SearchQuery } from './store.ts'
import { bytesOf, vectorIn } from './vectors.ts'

// Bodies of requests. A vector is a list of numbers, or its float32 values, little-endian, in base64: exact, and half as long.
// Fields that nobody reads are refused; what they contain is checked by the store.

type Json = Record<string, unknown>

export const encodeVector = (vector: Float32Array): string => Buffer.from(bytesOf(vector)).toString('base64')

/** Undefined and null as they are. Throws if it is no vector in either form. */
function decodeVector(value: unknown, pointer: string): unknown {
  if (value === undefined || value === null) return value
  if (Array.isArray(value) && value.every((one) => typeof one === 'number')) return Float32Array.from(value)
  const vector = typeof value === 'string' ? vectorIn(Buffer.from(value, 'base64')) : null
  if (!vector) throw invalid(pointer, 'A vector is a list of numbers, or float32 values in base64')
  return vector
}

/** The object, if it has these fields alone. */
function only(value: unknown, pointer: string, fields: string[]): Json {
  if (typeof value !== 'object' || value === null || Array.isArray(value))
    throw invalid(pointer, `This is an object with ${fields.join(', ')}`)
  for (const field of Object.keys(value))
    if (!fields.includes(field)) throw invalid(`${pointer}/${field}`, `The fields are ${fields.join(', ')}`)
  return value as Json
}

const embedderFields = ['name', 'hash', 'dimensions']

export function readSpec(body: unknown): Json {
  const spec = only(body, '', ['embedder', 'metadata_schema'])
  only(spec['embedder'], '/embedder', embedderFields)
  return spec
}

export const writeDocument = (embedder: Embedder, { version, metadata, chunks }: Document): object => ({
  embedder,
  version,
  metadata,
  chunks: chunks.map((chunk) => ({ ...chunk, vector: chunk.vector && encodeVector(chunk.vector) })),
})

/** A body without metadata, locators or vectors has none. */
export function readDocument(id: string, body: unknown): { embedder: Embedder; document: Document } {
  const given = only(body, '', ['embedder', 'version', 'metadata', 'chunks'])
  const embedder = only(given['embedder'], '/embedder', embedderFields)
  if (!Array.isArray(given['chunks'])) throw invalid('/chunks', 'A document has a list of chunks')
  const chunks = given['chunks'].map((one, index) => {
    const { locator = {}, vector = null, ...chunk } = only(one, `/chunks/${index}`, chunkFields)
    return { ...chunk, locator, vector: decodeVector(vector, `/chunks/${index}/vector`) } as Chunk
  })
  const { version, metadata = {} } = given
  return { embedder: embedder as never, document: { id, version, metadata, chunks } as Document }
}

const chunkFields = ['hash', 'text', 'locator', 'vector']

export const writeAside = (embedder: Embedder, vectors: AsideVector[], most: number): object => ({
  embedder,
  vectors: vectors.map(({ chunk, vector }) => ({ chunk, vector: encodeVector(vector) })),
  most,
})

export function readAside(body: unknown): { embedder: Embedder; vectors: AsideVector[]; most: number } {
  const { embedder, vectors = [], most } = only(body, '', ['embedder', 'vectors', 'most'])
  only(embedder, '/embedder', embedderFields)
  if (!Array.isArray(vectors)) throw invalid('/vectors', 'This is a list of vectors by chunk')
  const read = vectors.map((one, index) => {
    const { chunk, vector } = only(one, `/vectors/${index}`, ['chunk', 'vector'])
    return { chunk, vector: decodeVector(vector, `/vectors/${index}/vector`) }
  })
  return { embedder, vectors: read, most } as never
}

export function readEmbedder(body: unknown): Embedder {
  const { embedder } = only(body, '', ['embedder'])
  return only(embedder, '/embedder', embedderFields) as never
}

export const writeQuery = ({ vector, ...rest }: SearchQuery): object => ({
  ...rest,
  ...(vector && { vector: encodeVector(vector) }),
})

export function readQuery(body: unknown): SearchQuery {
  const query = only(body, '', ['mode', 'k', 'text', 'vector', 'embedder', 'filter'])
  return { ...query, vector: decodeVector(query['vector'], '/vector') } as never
}

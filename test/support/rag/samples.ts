import type { Chunk, CollectionSpec, Document, Embedder, Metadata } from '../../../images/rag/store.ts'

// Documents whose texts say which version of which document they are of.

export const embedder: Embedder = { name: 'sample', hash: 'sha256:0f', dimensions: 8 }
export const spec: CollectionSpec = {
  embedder,
  metadata_schema: { year: 'number', language: 'string', public: 'boolean' },
}

/** A vector that is the same for the same text. */
export function vectorOf(text: string, dimensions = embedder.dimensions): Float32Array {
  const bytes = Buffer.from(text.padEnd(dimensions, '.'))
  return Float32Array.from({ length: dimensions }, (_, index) => {
    let value = 0
    for (let at = index; at < bytes.length; at += dimensions)
      value = (value * 31 + (bytes[at] as number)) % 1009
    return value - 504.5
  })
}

export const chunkOf = (text: string, more: Partial<Chunk> = {}): Chunk => ({
  hash: `hash-${text}`,
  text,
  locator: { page: 1 },
  vector: vectorOf(text),
  ...more,
})

export const documentOf = (
  id: string,
  version: number,
  texts: string[],
  metadata: Metadata = {},
): Document => ({ id, version, metadata, chunks: texts.map((text) => chunkOf(text)) })

/** The document as a caller sends it that hopes to embed nothing. */
export const withoutVectors = (document: Document): Document => ({
  ...document,
  chunks: document.chunks.map((chunk) => ({ ...chunk, vector: null })),
})

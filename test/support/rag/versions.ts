import { expect } from '@jest/globals'
import type { Store } from '../../../images/rag/store.ts'
import { documentOf, embedder, vectorOf } from './samples.ts'

// A document of which each version is known by all of its chunks.

/** Versions have different numbers of chunks, and half of the chunks of the one before. */
const sizes = [300, 120, 480]
export const sizeOf = (version: number): number => sizes[version % sizes.length] as number
export const documentAt = (version: number) =>
  documentOf(
    'd',
    version,
    Array.from({ length: sizeOf(version) }, (_, index) =>
      index % 2 ? `common chunk ${index}` : `common chunk ${index} of version ${version}`,
    ),
  )

async function found(store: Store, collection: string) {
  const { hits: byText } = await store.search(collection, { mode: 'text', k: 1000, text: 'common' })
  const { hits: byVector } = await store.search(collection, {
    mode: 'vector',
    k: 1000,
    vector: vectorOf('x'),
    embedder,
  })
  return { byText, byVector }
}

/** The version that is there. Fails unless all of it is there, once, and nothing else. */
export async function wholeVersion(store: Store, collection: string): Promise<number> {
  const { byText, byVector } = await found(store, collection)
  const version = byText[0]?.version ?? 0
  const expected = documentAt(version).chunks.map(({ text }, position) => ({ version, position, text }))
  for (const hits of [byText, byVector]) {
    const seen = hits.map((hit) => ({ version: hit.version, position: hit.position, text: hit.text }))
    expect(seen.toSorted((a, b) => a.position - b.position)).toEqual(expected)
  }
  return version
}

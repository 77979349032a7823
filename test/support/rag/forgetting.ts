import { afterEach, describe, expect, test } from '@jest/globals'
import type { AsideVector, Document, Embedder, Replaced } from '../../../images/rag/store.ts'
import { bytesOf, normalised } from '../../../images/rag/vectors.ts'
import { Dice } from '../random.ts'
import { seed } from '../sampled.ts'
import { filesWith } from './files.ts'
import type { OpenStore } from './stores.ts'
import { clusteredVectors } from './vectors.ts'

// What is deleted is in no file of the collection any more: its texts, its words in the index, and its vectors.

export const embedder: Embedder = { name: 'sample', hash: 'h', dimensions: 96 }
export const collection = 'forgetful'
const dice = new Dice(seed)
const letters = 'bcdfghjkmnpqrtvwxz'.split('')
/** No word's beginning, so that the index cannot write it as an end of the word before; and no word has an other form. */
const word = (): string => Array.from({ length: 16 }, () => dice.one(letters)).join('') + '7'

let made = 0
export function documentWith(id: string, version: number, words: string[]): Document {
  const vectors = clusteredVectors(words.length, {
    dimensions: embedder.dimensions,
    clusters: 1,
    seed: ++made,
  })
  return {
    id,
    version,
    metadata: {},
    chunks: words.map((one, index) => ({
      hash: `${id}-${one}`,
      // Longer than a page of the file.
      text: `${one} ${'common words of all chunks '.repeat(400)} ${one}`,
      locator: {},
      vector: vectors[index] as Float32Array,
    })),
  }
}

/** What a file would have in it of the chunks: a part of the word, as the index keeps it, and of the vector. */
export const tracesOf = ({ chunks }: Document): Record<string, Uint8Array> =>
  Object.fromEntries(
    chunks.flatMap(({ text, vector }, index) => {
      const unit = bytesOf(normalised(vector as Float32Array) as Float32Array)
      return [
        [`word ${index}`, Buffer.from(text.slice(6, 16))],
        [`vector ${index}`, unit.slice(0, 24)],
        [`end of vector ${index}`, unit.slice(-24)],
        // As pgvector's index has it.
        [`half-precision vector ${index}`, bytesOfHalf(vector as Float32Array)],
      ]
    }),
  )

function bytesOfHalf(vector: Float32Array): Uint8Array {
  const unit = normalised(vector) as Float32Array
  const bytes = new DataView(new ArrayBuffer(24))
  for (let at = 0; at < bytes.byteLength; at += 2) bytes.setFloat16(at, unit[at / 2] as number, true)
  return new Uint8Array(bytes.buffer)
}

export const words = (count: number): string[] => Array.from({ length: count }, word)

export const makeEmpty = ({ store }: OpenStore) =>
  store.createCollection(collection, { embedder, metadata_schema: {} })

/** A collection with 20 documents of 5 chunks. */
export async function fill(opened: OpenStore): Promise<void> {
  await makeEmpty(opened)
  for (let number = 0; number < 20; number++)
    await replace(opened, documentWith(`other-${number}`, 1, words(5)))
}

export const replace = ({ store }: OpenStore, document: Document): Promise<Replaced> =>
  store.replaceDocument(collection, embedder, document)

const nextEmbedder: Embedder = { ...embedder, hash: 'next' }

/** Gives each chunk a vector of the next embedder. Returns what a file would have in it of some of them. */
async function fillAside({ store }: OpenStore): Promise<Record<string, Uint8Array>> {
  const { chunks } = await store.putAside(collection, nextEmbedder, [], 1_000)
  const vectors = clusteredVectors(chunks.length, {
    dimensions: embedder.dimensions,
    clusters: 1,
    seed: ++made,
  })
  const given: AsideVector[] = chunks.map(({ chunk }, index) => ({
    chunk,
    vector: vectors[index] as Float32Array,
  }))
  await store.putAside(collection, nextEmbedder, given, 0)
  return Object.fromEntries(
    given.slice(-8).map(({ chunk, vector }) => {
      const unit = bytesOf(normalised(vector) as Float32Array)
      return [chunk, unit.slice(0, 24)]
    }),
  )
}

/** `files`: where the store keeps collections, without their snapshots. `forms`: in how many forms it has each vector. */
export function describeForgetting(
  name: string,
  open: () => Promise<OpenStore>,
  files: (opened: OpenStore) => string,
  { forms = 1 } = {},
): void {
  describe(name, () => {
    let opened: OpenStore
    afterEach(() => opened.close())
    const found = (document: Document): string[] => filesWith(files(opened), tracesOf(document))

    test('a document that is deleted is in no file', async () => {
      opened = await open()
      await fill(opened)
      const document = documentWith('secret', 1, words(10))
      await replace(opened, document)
      // The search finds what is there: each word in text and index, and each vector from its beginning to its end.
      expect(new Set(found(document).map((trace) => trace.replace(/ in .*/, ''))).size).toBe(20 + 10 * forms)
      await opened.store.deleteDocument(collection, 'secret', 1)
      expect(found(document)).toEqual([])
    })

    test('the chunks that a new version lacks are in no file, and the others are', async () => {
      opened = await open()
      await fill(opened)
      const document = documentWith('secret', 1, words(6))
      await replace(opened, document)
      const [kept, ...gone] = document.chunks
      const next = { ...document, version: 2, chunks: [{ ...(kept as Document['chunks'][0]), vector: null }] }
      await replace(opened, next)
      expect(found({ ...document, chunks: gone })).toEqual([])
      expect(found({ ...next, chunks: document.chunks.slice(0, 1) })).not.toEqual([])
    })

    test('the vectors of an embedder that was replaced are in no file, and its texts are', async () => {
      opened = await open()
      await fill(opened)
      const document = documentWith('secret', 1, words(8))
      await replace(opened, document)
      await fillAside(opened)
      expect(await opened.store.useEmbedder(collection, nextEmbedder)).toEqual({ outcome: 'used' })
      const traces = found(document).map((trace) => trace.replace(/ in .*/, ''))
      expect(traces.filter((trace) => trace.includes('vector'))).toEqual([])
      expect(new Set(traces).size).toBe(8)
    })

    test('vectors aside that are given up, or whose document is deleted, are in no file', async () => {
      opened = await open()
      await fill(opened)
      for (const forget of [
        () => opened.store.deleteDocument(collection, 'secret', 1),
        () => opened.store.useEmbedder(collection, embedder),
      ]) {
        await replace(opened, documentWith('secret', 1, words(8)))
        const traces = await fillAside(opened)
        expect(
          new Set(filesWith(files(opened), traces).map((trace) => trace.replace(/ in .*/, ''))).size,
        ).toBe(8)
        await forget()
        expect(filesWith(files(opened), traces)).toEqual([])
        await opened.store.dropCollection(collection)
        await makeEmpty(opened)
      }
    })

    test('a collection that is dropped is in no file of the store', async () => {
      opened = await open()
      await fill(opened)
      const document = documentWith('secret', 1, words(3))
      await replace(opened, document)
      await opened.store.snapshot(collection)
      await opened.store.dropCollection(collection)
      expect(filesWith(opened.folder, tracesOf(document))).toEqual([])
    })
  })
}

import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, test } from '@jest/globals'
import type { AsideVector, Embedder, LackingChunk, Store } from '../../../images/rag/store.ts'
import { documentOf, embedder, vectorOf } from './samples.ts'
import { near, textsOf, type Tried } from './tried.ts'

// What every store does with vectors of another embedder.

/** Other dimensions than the sample's. */
export const nextEmbedder: Embedder = { name: 'next', hash: 'sha256:1e', dimensions: 40 }

export const nextVectors = (
  chunks: LackingChunk[],
  { dimensions }: Pick<Embedder, 'dimensions'> = nextEmbedder,
): AsideVector[] => chunks.map(({ chunk, text }) => ({ chunk, vector: vectorOf(text, dimensions) }))

/** Gives vectors until none lacks. Returns how many were given. */
export async function fillAside(
  store: Store,
  collection: string,
  most = 3,
  given: Embedder = nextEmbedder,
): Promise<number> {
  let sum = 0
  for (let vectors: AsideVector[] = []; ; ) {
    const { chunks } = await store.putAside(collection, given, vectors, most)
    if (!chunks.length) return sum
    vectors = nextVectors(chunks, given)
    sum += vectors.length
  }
}

const byNext = (text: string) => ({
  mode: 'vector' as const,
  vector: vectorOf(text, nextEmbedder.dimensions),
  embedder: nextEmbedder,
})

const two = () => [documentOf('a', 1, ['red fox', 'red hen']), documentOf('b', 1, ['blue cat'])]
const mismatch = { code: 'embedder_mismatch' }
const missing = (lacking: number) => ({ outcome: 'vectors_missing', lacking })

export function describeAsides({ store, again, makeCollection, search }: Tried): void {
  describe('another embedder', () => {
    test('is used from the moment on when all its vectors are there', async () => {
      const collection = await makeCollection(two())
      const begun = await store().putAside(collection, nextEmbedder, [], 2)
      expect(begun).toMatchObject({ lacking: 3, all: 3, chunks: [{ text: 'red fox' }, { text: 'red hen' }] })
      expect(await store().useEmbedder(collection, nextEmbedder)).toEqual(missing(3))
      expect(await store().putAside(collection, nextEmbedder, nextVectors(begun.chunks), 2)).toMatchObject({
        lacking: 1,
        chunks: [{ text: 'blue cat' }],
      })
      expect(await store().stats(collection)).toMatchObject({ embedder, aside: nextEmbedder })
      // The former one is searched until then.
      expect(textsOf(await search(collection, near('red hen', { k: 1 })))).toEqual(['red hen'])
      await expect(search(collection, byNext('red hen'))).rejects.toMatchObject(mismatch)

      await fillAside(store(), collection)
      const { generation } = await store().stats(collection)
      expect(await store().useEmbedder(collection, nextEmbedder)).toEqual({ outcome: 'used' })
      expect(await store().stats(collection)).toMatchObject({
        embedder: nextEmbedder,
        aside: null,
        documents: 2,
        chunks: 3,
        generation: generation + 1,
      })
      const [best] = await search(collection, { ...byNext('red hen'), k: 1 })
      expect(best).toMatchObject({ text: 'red hen', score: expect.closeTo(1), document_id: 'a', version: 1 })
      expect(textsOf(await search(collection, { text: 'blue' }))).toEqual(['blue cat'])
      await expect(search(collection, near('red hen'))).rejects.toMatchObject(mismatch)
      const former = store().replaceDocument(collection, embedder, documentOf('c', 1, ['x']))
      await expect(former).rejects.toMatchObject(mismatch)
      // Both may be sent again.
      expect(await store().useEmbedder(collection, nextEmbedder)).toEqual({ outcome: 'used' })
      expect(await store().putAside(collection, nextEmbedder, [], 2)).toEqual({
        chunks: [],
        lacking: 0,
        all: 3,
      })
    })

    test('is as it was after a new start of the store', async () => {
      const collection = await makeCollection(two())
      const { chunks } = await store().putAside(collection, nextEmbedder, [], 1)
      await store().putAside(collection, nextEmbedder, nextVectors(chunks), 0)
      await again()
      expect(await store().stats(collection)).toMatchObject({ embedder, aside: nextEmbedder })
      expect(await fillAside(store(), collection)).toBe(2)
      await store().useEmbedder(collection, nextEmbedder)
      await again()
      expect(await store().stats(collection)).toMatchObject({ embedder: nextEmbedder, aside: null })
      expect(textsOf(await search(collection, { ...byNext('blue cat'), k: 1 }))).toEqual(['blue cat'])
    })

    test('needs vectors of what changes meanwhile, and of nothing else', async () => {
      const collection = await makeCollection(two())
      await fillAside(store(), collection)
      await store().replaceDocument(collection, embedder, documentOf('c', 1, ['green dog']))
      const red = documentOf('a', 2, ['red fox', 'red cow'])
      const [fox] = red.chunks
      if (fox) fox.vector = null
      await store().replaceDocument(collection, embedder, red)
      await store().deleteDocument(collection, 'b', 1)
      expect(await store().useEmbedder(collection, nextEmbedder)).toEqual(missing(2))
      const { chunks, all } = await store().putAside(collection, nextEmbedder, [], 9)
      expect([chunks.map(({ text }) => text).toSorted(), all]).toEqual([['green dog', 'red cow'], 3])
      await fillAside(store(), collection)
      await store().useEmbedder(collection, nextEmbedder)
      for (const text of ['green dog', 'red cow', 'red fox'])
        expect(textsOf(await search(collection, { ...byNext(text), k: 1 }))).toEqual([text])
      expect(await search(collection, { text: 'blue' })).toEqual([])
    })

    test('never takes a vector for the text of another chunk', async () => {
      const collection = await makeCollection(two())
      const { chunks } = await store().putAside(collection, nextEmbedder, [], 9)
      // The number of the chunk that is removed may be given to the next one.
      await store().deleteDocument(collection, 'b', 1)
      await store().replaceDocument(collection, embedder, documentOf('c', 1, ['green dog']))
      const after = await store().putAside(collection, nextEmbedder, nextVectors(chunks), 9)
      expect(after).toMatchObject({ lacking: 1, chunks: [{ text: 'green dog' }] })
    })

    test('is given up by the use of the present one', async () => {
      const collection = await makeCollection(two())
      await fillAside(store(), collection)
      expect(await store().useEmbedder(collection, embedder)).toEqual({ outcome: 'used' })
      expect(await store().stats(collection)).toMatchObject({ embedder, aside: null, chunks: 3 })
      expect(textsOf(await search(collection, near('red hen', { k: 1 })))).toEqual(['red hen'])
      expect(await store().useEmbedder(collection, nextEmbedder)).toEqual(missing(3))
      // Who has not heard of it does not begin anew.
      const [chunk] = (await store().putAside(collection, { ...nextEmbedder, hash: 'z' }, [], 1)).chunks
      await store().useEmbedder(collection, embedder)
      const late = store().putAside(collection, nextEmbedder, nextVectors(chunk ? [chunk] : []), 1)
      await expect(late).rejects.toMatchObject(mismatch)
      expect(await store().stats(collection)).toMatchObject({ aside: null })
    })

    test('takes the place of a third one', async () => {
      const collection = await makeCollection(two())
      const third = { ...nextEmbedder, hash: 'third', dimensions: 12 }
      await fillAside(store(), collection, 9, third)
      expect(await store().putAside(collection, nextEmbedder, [], 0)).toMatchObject({ lacking: 3 })
      expect(await store().useEmbedder(collection, third)).toEqual(missing(3))
    })

    test('is used at once by a collection without chunks', async () => {
      const collection = await makeCollection()
      expect(await store().useEmbedder(collection, nextEmbedder)).toEqual({ outcome: 'used' })
      expect(await store().stats(collection)).toMatchObject({ embedder: nextEmbedder })
    })

    test('or the former one answers each search, in the middle of the change', async () => {
      const texts = Array.from({ length: 200 }, (_, index) => `fox ${index}`)
      const collection = await makeCollection([documentOf('d', 1, texts)])
      await fillAside(store(), collection, 100)
      const state = { ended: false }
      const using = store()
        .useEmbedder(collection, nextEmbedder)
        .finally(() => (state.ended = true))
      do {
        await nextTurn()
        const [former, next] = await Promise.allSettled([
          search(collection, near('fox 7', { k: 1 })),
          search(collection, { ...byNext('fox 7'), k: 1 }),
        ])
        for (const one of [former, next])
          if (one.status === 'fulfilled') expect(textsOf(one.value)).toEqual(['fox 7'])
          else expect(one.reason).toMatchObject(mismatch)
        expect(await search(collection, { text: 'fox' })).toHaveLength(10)
      } while (!state.ended)
      expect(await using).toEqual({ outcome: 'used' })
    })

    test.each([
      ['a chunk that is no name', { chunk: 'x' }, '/vectors/0/chunk'],
      ['a vector that is too short', { vector: new Float32Array(8).fill(1) }, '/vectors/0/vector'],
      ['a vector without a direction', { vector: new Float32Array(40) }, '/vectors/0/vector'],
    ])('is refused with %s', async (_, more, pointer) => {
      const collection = await makeCollection(two())
      const { chunks } = await store().putAside(collection, nextEmbedder, [], 1)
      const [vector] = nextVectors(chunks)
      const given = { ...vector, ...more } as AsideVector
      await expect(store().putAside(collection, nextEmbedder, [given], 1)).rejects.toMatchObject({
        code: 'invalid_input',
        pointer,
      })
    })

    test.each([
      ['no dimensions', { ...nextEmbedder, dimensions: 0 }, 1, '/embedder/dimensions'],
      ['too many chunks at once', nextEmbedder, 1_001, '/most'],
    ])('is refused with %s', async (_, other, most, pointer) => {
      const collection = await makeCollection()
      await expect(store().putAside(collection, other, [], most)).rejects.toMatchObject({
        code: 'invalid_input',
        pointer,
      })
    })
  })
}

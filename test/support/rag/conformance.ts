import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { describeAsides } from './conformance-asides.ts'
import { describeDocuments } from './conformance-documents.ts'
import { describeSearches } from './conformance-searches.ts'
import { documentOf, embedder, spec } from './samples.ts'
import type { OpenStore } from './stores.ts'
import { near, tried } from './tried.ts'

/** What every store does, with any engine. Each test has a collection of its own. */
export function describeStore(name: string, open: () => Promise<OpenStore>): void {
  describe(name, () => {
    let opened: OpenStore
    beforeAll(async () => {
      opened = await open()
    })
    afterAll(() => opened.close())
    const all = tried(() => opened)
    const { store, makeCollection, search } = all

    describe('a collection', () => {
      test('is created once, and tells what it has', async () => {
        const collection = await makeCollection()
        expect(await store().createCollection(collection, spec)).toMatchObject({
          name: collection,
          ...spec,
          documents: 0,
          chunks: 0,
        })
        await store().replaceDocument(collection, embedder, documentOf('d', 1, ['one', 'two']))
        const stats = await store().stats(collection)
        expect(stats).toMatchObject({ documents: 1, chunks: 2 })
        expect(stats.bytes).toBeGreaterThan(0)
      })

      test('refuses the name for another embedder or schema', async () => {
        const collection = await makeCollection()
        const others = [
          { ...spec, embedder: { ...embedder, hash: 'other' } },
          { ...spec, embedder: { ...embedder, dimensions: 9 } },
          { ...spec, metadata_schema: { year: 'string' as const } },
        ]
        for (const other of others)
          await expect(store().createCollection(collection, other)).rejects.toMatchObject({
            code: 'collection_exists',
          })
      })

      test('is gone once it is dropped, and its name is free', async () => {
        const collection = await makeCollection([documentOf('d', 1, ['old words'])])
        await store().snapshot(collection)
        await store().dropCollection(collection)
        await expect(store().stats(collection)).rejects.toMatchObject({ code: 'collection_not_found' })
        await store().dropCollection(collection)
        await store().createCollection(collection, spec)
        expect(await search(collection, { text: 'old words' })).toEqual([])
      })

      test('takes vectors of its own embedder alone', async () => {
        const collection = await makeCollection()
        const mismatch = { code: 'embedder_mismatch' }
        for (const other of [
          { ...embedder, name: 'other' },
          { ...embedder, hash: 'other' },
          { ...embedder, dimensions: 4 },
        ]) {
          const document = documentOf('d', 1, ['one'])
          await expect(store().replaceDocument(collection, other, document)).rejects.toMatchObject(mismatch)
          await expect(search(collection, { ...near('one'), embedder: other })).rejects.toMatchObject(
            mismatch,
          )
        }
      })
    })

    describeDocuments(all)
    describeSearches(all)
    describeAsides(all)

    test('a snapshot is a copy of the collection as it is, in the place of the former one', async () => {
      const collection = await makeCollection([documentOf('d', 1, ['red fox'])])
      const first = await store().snapshot(collection)
      expect(first).toMatchObject({ path: expect.any(String), bytes: expect.any(Number) })
      await store().deleteDocument(collection, 'd', 1)
      const second = await store().snapshot(collection)
      expect(second.path).toBe(first.path)
      expect(second.generation).toBeGreaterThan(first.generation)
    })

    test('the store tells that it is ready', async () => {
      await makeCollection()
      expect(await store().health()).toEqual({ ready: true, reason: null })
    })
  })
}

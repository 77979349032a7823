import { setImmediate as nextTurn } from 'node:timers/promises'
import { describe, expect, test } from '@jest/globals'
import type { Document } from '../../../images/rag/store.ts'
import { chunkOf, documentOf, embedder, withoutVectors } from './samples.ts'
import { near, textsOf, type Tried } from './tried.ts'

const modes = ['vector', 'text', 'hybrid']
const sizeOf = (version: number): number => 20 + 30 * (version % 3)
const versionOf = (version: number): Document =>
  documentOf(
    'd',
    version,
    Array.from({ length: sizeOf(version) }, (_, index) => `fox ${index} of ${version}`),
  )

export function describeDocuments({ store, again, makeCollection, search }: Tried): void {
  describe('a document', () => {
    test('takes the place of its former version, all chunks at once', async () => {
      const collection = await makeCollection([documentOf('d', 1, ['red fox', 'red hen', 'red cat'])])
      const other = documentOf('d', 2, ['red dog', 'red fox'], { year: 1958 })
      expect(await store().replaceDocument(collection, embedder, other)).toEqual({
        outcome: 'replaced',
        chunks: 2,
        kept: 0,
      })
      const hits = await search(collection, { text: 'red' })
      expect(textsOf(hits).toSorted()).toEqual(['red dog', 'red fox'])
      expect(hits.map(({ version, metadata }) => ({ version, metadata }))).toEqual(
        Array.from({ length: 2 }, () => ({ version: 2, metadata: { year: 1958 } })),
      )
      expect(await store().stats(collection)).toMatchObject({ documents: 1, chunks: 2 })
    })

    test('is found whole while it is replaced', async () => {
      const collection = await makeCollection([versionOf(1)])
      const state = { ended: false }
      const replacing = (async () => {
        for (let version = 2; version <= 25; version++)
          await store().replaceDocument(collection, embedder, versionOf(version))
      })().finally(() => (state.ended = true))
      for (let searches = 0; !state.ended; searches++) {
        await nextTurn() // what is written comes to the engine in this process by messages
        const both = { ...near('fox'), text: 'fox', k: 100, mode: modes[searches % modes.length] as never }
        const hits = await search(collection, both)
        const [version = 0] = hits.map((hit) => hit.version)
        const positions = new Set(hits.map((hit) => `${hit.version}: ${hit.position}`))
        expect(positions).toEqual(
          new Set(Array.from({ length: sizeOf(version) }, (_, index) => `${version}: ${index}`)),
        )
      }
      await replacing
    })

    test('is written once, however often it is sent', async () => {
      const collection = await makeCollection()
      const document = documentOf('d', 3, ['red fox', 'red hen'])
      await Promise.all(
        Array.from({ length: 5 }, () => store().replaceDocument(collection, embedder, document)),
      )
      expect(await store().replaceDocument(collection, embedder, document)).toEqual({
        outcome: 'unchanged',
        chunks: 2,
      })
      expect(await search(collection, { text: 'red' })).toHaveLength(2)
    })

    test('refuses a version that is older than what is there', async () => {
      const collection = await makeCollection([documentOf('d', 3, ['new'])])
      const stale = { code: 'stale_version' }
      const late = store().replaceDocument(collection, embedder, documentOf('d', 2, ['old']))
      await expect(late).rejects.toMatchObject(stale)
      await expect(store().deleteDocument(collection, 'd', 2)).rejects.toMatchObject(stale)
      expect(textsOf(await search(collection, { text: 'new old' }))).toEqual(['new'])
    })

    test('keeps the vectors of chunks that come without one', async () => {
      const collection = await makeCollection([documentOf('d', 1, ['red fox', 'red hen', 'red cat'])])
      const moved = withoutVectors(documentOf('d', 2, ['red cat', 'red fox']))
      moved.chunks.push(chunkOf('red dog', { locator: { page: 7 } }))
      expect(await store().replaceDocument(collection, embedder, moved)).toEqual({
        outcome: 'replaced',
        chunks: 3,
        kept: 2,
      })
      const [hit] = await search(collection, near('red fox', { k: 1 }))
      expect(hit).toMatchObject({ text: 'red fox', position: 1, version: 2 })
      expect(hit?.score).toBeCloseTo(1)
      expect(textsOf(await search(collection, { text: 'hen' }))).toEqual([])
    })

    test('has a vector for each of several chunks with the same text', async () => {
      const collection = await makeCollection([documentOf('d', 1, ['red fox'])])
      const twice = withoutVectors(documentOf('d', 2, ['red fox', 'red fox']))
      await store().replaceDocument(collection, embedder, twice)
      const hits = await search(collection, near('red fox'))
      expect(new Set(hits.map(({ position }) => position))).toEqual(new Set([0, 1]))
      expect(await search(collection, { text: 'fox' })).toHaveLength(2)
    })

    test('stays as it is while vectors are missing, and tells which', async () => {
      const collection = await makeCollection([documentOf('d', 1, ['red fox', 'red hen'])])
      const changed = withoutVectors(documentOf('d', 2, ['red fox', 'blue whale', 'blue jay', 'blue jay']))
      expect(await store().replaceDocument(collection, embedder, changed)).toEqual({
        outcome: 'vectors_missing',
        hashes: ['hash-blue whale', 'hash-blue jay'],
      })
      expect(textsOf(await search(collection, { text: 'red blue' })).toSorted()).toEqual([
        'red fox',
        'red hen',
      ])
    })

    test('without chunks is there, and is found by nothing', async () => {
      const collection = await makeCollection([documentOf('d', 1, ['red fox'])])
      await store().replaceDocument(collection, embedder, documentOf('d', 2, []))
      expect(await search(collection, { text: 'red' })).toEqual([])
      expect(await store().stats(collection)).toMatchObject({ documents: 1, chunks: 0 })
    })

    test('is gone once it is deleted, and comes back with a higher version alone', async () => {
      const collection = await makeCollection([
        documentOf('d', 1, ['red fox']),
        documentOf('e', 1, ['red hen']),
      ])
      for (let time = 0; time < 2; time++) await store().deleteDocument(collection, 'd', 2)
      expect(textsOf(await search(collection, { text: 'red' }))).toEqual(['red hen'])
      expect(textsOf(await search(collection, near('red fox')))).toEqual(['red hen'])
      const late = store().replaceDocument(collection, embedder, documentOf('d', 2, ['red fox']))
      await expect(late).rejects.toMatchObject({ code: 'stale_version' })
      await store().replaceDocument(collection, embedder, documentOf('d', 3, ['red fox']))
      expect(await search(collection, { text: 'red' })).toHaveLength(2)
    })

    test('survives a new start of the store', async () => {
      const collection = await makeCollection([
        documentOf('d', 1, ['red fox', 'red hen'], { year: 1958 }),
        documentOf('e', 1, ['red cat']),
      ])
      const before = await store().stats(collection)
      await again()
      const { bytes: _, ...kept } = before
      expect(await store().stats(collection)).toMatchObject(kept)
      const [hit] = await search(collection, near('red hen', { filter: { year: 1958 } }))
      expect(hit).toMatchObject({ text: 'red hen', document_id: 'd', metadata: { year: 1958 } })
      expect(textsOf(await search(collection, { text: 'cat' }))).toEqual(['red cat'])
    })
  })
}

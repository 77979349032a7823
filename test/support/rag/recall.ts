import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import type { Embedder, Filter } from '../../../images/rag/store.ts'
import { isLong } from '../long.ts'
import type { OpenStore } from './stores.ts'
import { clusteredVectors, exactNearest } from './vectors.ts'

// A store's search by vector against exact search with the same vectors.

const count = isLong ? 20_000 : 6_000
const queries = isLong ? 100 : 40
const perDocument = 20
const embedder: Embedder = { name: 'clustered', hash: 'h', dimensions: 384 }
const vectors = clusteredVectors(count + queries, { dimensions: 384, clusters: 60, seed: 5 })
const stored = vectors.slice(0, count)
const asked = vectors.slice(count)
const metadataOf = (document: number) => ({ year: 1900 + (document % 100), odd: document % 2 === 1 })

const filters: [string, Filter, (document: number) => boolean][] = [
  ['without a filter', {}, () => true],
  ['with a filter that leaves half', { odd: true }, (document) => metadataOf(document).odd],
  [
    'with a filter that leaves a tenth',
    { year: { lt: 1910 } },
    (document) => metadataOf(document).year < 1910,
  ],
  [
    'with a filter that leaves one in a hundred',
    { year: 1942 },
    (document) => metadataOf(document).year === 1942,
  ],
]

export function describeRecall(name: string, open: () => Promise<OpenStore>): void {
  describe(name, () => {
    let opened: OpenStore
    beforeAll(async () => {
      opened = await open()
      await opened.store.createCollection('c', {
        embedder,
        metadata_schema: { year: 'number', odd: 'boolean' },
      })
      for (let document = 0; document * perDocument < count; document++)
        await opened.store.replaceDocument('c', embedder, {
          id: String(document),
          version: 1,
          metadata: metadataOf(document),
          chunks: stored
            .slice(document * perDocument, (document + 1) * perDocument)
            .map((vector, index) => ({ hash: String(index), text: 'x', locator: {}, vector })),
        })
    })
    afterAll(() => opened.close())

    test.each(filters)('%s, the search finds at least 0.98 of the ten nearest', async (_, filter, leaves) => {
      let found = 0
      for (const query of asked) {
        const nearest = exactNearest(stored, query, 10, (at) => leaves(Math.floor(at / perDocument)))
        const { hits } = await opened.store.search('c', {
          mode: 'vector',
          k: 10,
          vector: query,
          embedder,
          filter,
        })
        expect(hits).toHaveLength(10)
        for (const { document_id, position } of hits)
          if (nearest.includes(Number(document_id) * perDocument + position)) found++
      }
      expect(found / (queries * 10)).toBeGreaterThanOrEqual(0.98)
    })
  })
}

import { describe, expect, test } from '@jest/globals'
import type { Filter, Hit } from '../../../images/rag/store.ts'
import { chunkOf, documentOf, vectorOf } from './samples.ts'
import { near, textsOf, type Tried } from './tried.ts'

const reciprocal = (rank: number | undefined): number => (rank ? 1 / (60 + rank) : 0)
const documentsIn = (hits: Hit[]): string[] => [...new Set(hits.map((hit) => hit.document_id))].toSorted()

export function describeSearches({ makeCollection, search }: Tried): void {
  describe('a search', () => {
    const animals = [
      documentOf('a', 1, ['the fox runs in the wood', 'the hen sleeps'], { year: 1950, language: 'en' }),
      documentOf('b', 1, ['a fox and a hen and a cat'], { year: 1960, public: true }),
      documentOf('c', 1, ['der Fuchs läuft'], { year: 1970, language: 'de', public: false }),
    ]

    test('shows where a hit is from, and what its score is made of', async () => {
      const document = documentOf('a', 4, ['other', 'the fox'], { year: 1950 })
      document.chunks[1] = chunkOf('the fox', { hash: 'h', locator: { page: 3, heading: ['A', 'B'] } })
      const collection = await makeCollection([document])
      const [hit] = await search(collection, { ...near('the fox'), mode: 'hybrid', text: 'fox', k: 1 })
      expect(hit).toEqual({
        document_id: 'a',
        version: 4,
        metadata: { year: 1950 },
        position: 1,
        hash: 'h',
        text: 'the fox',
        locator: { page: 3, heading: ['A', 'B'] },
        score: expect.closeTo(2 / 61),
        parts: {
          vector: { score: expect.closeTo(1), rank: 1 },
          text: { score: expect.any(Number), rank: 1 },
        },
      })
    })

    test('by vector ranks by the angle, whatever the lengths', async () => {
      const collection = await makeCollection(animals)
      const longer = vectorOf('der Fuchs läuft').map((value) => value * 1000)
      const hits = await search(collection, { ...near(''), vector: longer, k: 4 })
      expect(hits[0]).toMatchObject({ document_id: 'c', score: expect.closeTo(1), parts: { text: null } })
      expect(hits.map(({ score }) => score)).toEqual(hits.map(({ score }) => score).toSorted((a, b) => b - a))
      expect(hits).toHaveLength(4)
    })

    test('by text finds other forms of a word, and letters without their marks', async () => {
      const collection = await makeCollection(animals)
      expect(textsOf(await search(collection, { text: 'running foxes', k: 1 }))).toEqual([
        'the fox runs in the wood',
      ])
      expect(textsOf(await search(collection, { text: 'LAUFT' }))).toEqual(['der Fuchs läuft'])
    })

    test('by text finds a word that all chunks have', async () => {
      const collection = await makeCollection([documentOf('d', 1, ['fox', 'fox', 'fox'])])
      expect(await search(collection, { text: 'the fox' })).toHaveLength(3)
    })

    test('by text leaves out words that only make it a question, unless there are no others', async () => {
      const collection = await makeCollection(animals)
      const found = await search(collection, { text: 'What is in the wood, and who?' })
      expect(textsOf(found)).toEqual(['the fox runs in the wood'])
      expect(textsOf(await search(collection, { text: 'the' }))).toHaveLength(2)
      expect(await search(collection, { text: 'the elephant' })).toEqual([])
    })

    test('by both finds what either finds, and ranks what both find first', async () => {
      const collection = await makeCollection(animals)
      const query = { ...near('the hen sleeps'), mode: 'hybrid' as const, text: 'hen', k: 10 }
      const hits = await search(collection, query)
      expect(hits[0]?.text).toBe('the hen sleeps')
      expect(hits).toHaveLength(4)
      for (const { score, parts } of hits)
        expect(score).toBeCloseTo(reciprocal(parts.vector?.rank) + reciprocal(parts.text?.rank))
    })

    test('finds nothing in an empty collection, and nothing for words that are nowhere', async () => {
      const collection = await makeCollection()
      expect(await search(collection, { text: 'fox' })).toEqual([])
      expect(await search(collection, near('fox'))).toEqual([])
      expect(await search(await makeCollection(animals), { text: 'elephant' })).toEqual([])
    })

    const filters: [Filter, string[]][] = [
      [{}, ['a', 'b', 'c']],
      [{ year: 1950 }, ['a']],
      [{ year: { eq: 1960 } }, ['b']],
      [{ year: { gte: 1950, lt: 1970 } }, ['a', 'b']],
      [{ year: { gt: 1950, lte: 1970 } }, ['b', 'c']],
      [{ year: { in: [1950, 1970, 1990] } }, ['a', 'c']],
      [{ year: { in: [] } }, []],
      [{ language: 'de' }, ['c']],
      [{ language: { exists: true } }, ['a', 'c']],
      [{ language: { exists: false } }, ['b']],
      [{ public: false }, ['c']],
      [{ year: { gt: 1955 }, language: 'de' }, ['c']],
      [{ language: 'fr' }, []],
    ]
    test.each(filters)(
      'with the filter %j finds only what it leaves, in each mode',
      async (filter, found) => {
        const collection = await makeCollection(animals)
        const all = 'fox hen cat fuchs'
        expect(documentsIn(await search(collection, { text: all, filter }))).toEqual(found)
        expect(documentsIn(await search(collection, near('x', { filter })))).toEqual(found)
        const both = { ...near('x'), mode: 'hybrid' as const, text: all, filter }
        expect(documentsIn(await search(collection, both))).toEqual(found)
      },
    )
  })
}

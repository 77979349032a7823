import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import type { Document, SearchQuery, Store } from '../../../images/rag/store.ts'
import { chunkOf, documentOf, embedder, spec, vectorOf } from './samples.ts'
import type { OpenStore } from './stores.ts'

// Bad input. Each refusal names its place, and changes nothing.

const collection = 'refusals'
const withChunk = (more: object): Document => ({
  ...documentOf('d', 2, []),
  chunks: [chunkOf('fine'), { ...chunkOf('other'), ...more }],
})
const long = (length: number): string => 'x'.repeat(length)
const vector = vectorOf('x')

const documents: [string, object, string][] = [
  ['an id with a slash', documentOf('a/b', 2, ['x']), '/id'],
  ['an id that leads elsewhere', documentOf('..', 2, ['x']), '/id'],
  ['an id that is too long', documentOf(long(129), 2, ['x']), '/id'],
  ['version 0', documentOf('d', 0, ['x']), '/version'],
  ['half a version', documentOf('d', 1.5, ['x']), '/version'],
  ['a field that the schema lacks', documentOf('d', 2, ['x'], { other: 1 }), '/metadata/other'],
  ['a field that every object has', documentOf('d', 2, ['x'], { constructor: 'x' }), '/metadata/constructor'],
  ['a field of another type', documentOf('d', 2, ['x'], { year: '1958' }), '/metadata/year'],
  ['a field that is too long', documentOf('d', 2, ['x'], { language: long(513) }), '/metadata/language'],
  ['a chunk without a text', withChunk({ text: '' }), '/chunks/1/text'],
  ['a chunk with a text that is too long', withChunk({ text: long(32_769) }), '/chunks/1/text'],
  ['a chunk without a hash', withChunk({ hash: '' }), '/chunks/1/hash'],
  ['a locator that is too long', withChunk({ locator: { x: long(4_096) } }), '/chunks/1/locator'],
  ['a locator that is no object', withChunk({ locator: [1] }), '/chunks/1/locator'],
  ['a vector that is too short', withChunk({ vector: vector.slice(1) }), '/chunks/1/vector'],
  ['a vector that is too long', withChunk({ vector: new Float32Array(9).fill(1) }), '/chunks/1/vector'],
  ['a vector with NaN', withChunk({ vector: vector.with(3, Number.NaN) }), '/chunks/1/vector'],
  [
    'a vector with infinity',
    withChunk({ vector: vector.with(3, Number.POSITIVE_INFINITY) }),
    '/chunks/1/vector',
  ],
  ['a vector without a direction', withChunk({ vector: new Float32Array(8) }), '/chunks/1/vector'],
]

const query: SearchQuery = { mode: 'hybrid', k: 3, text: 'fox', vector, embedder }
const queries: [string, object, string][] = [
  ['no mode', { mode: undefined }, '/mode'],
  ['another mode', { mode: 'constructor' }, '/mode'],
  ['k of 0', { k: 0 }, '/k'],
  ['k below 0', { k: -1 }, '/k'],
  ['half a k', { k: 1.5 }, '/k'],
  ['a huge k', { k: 1e9 }, '/k'],
  ['no text', { text: undefined }, '/text'],
  ['an empty text', { text: '' }, '/text'],
  ['a blank text', { text: ' \n' }, '/text'],
  ['a text that is too long', { text: long(32_769) }, '/text'],
  ['no vector', { vector: undefined }, '/vector'],
  ['a vector that is too short', { vector: vector.slice(1) }, '/vector'],
  ['a vector with NaN', { vector: vector.with(0, Number.NaN) }, '/vector'],
  ['no embedder', { embedder: undefined }, '/embedder'],
]

const filters: [string, unknown, string][] = [
  ['a field that the schema lacks', { other: 1 }, '/filter/other'],
  ['a field that every object has', { constructor: 'x' }, '/filter/constructor'],
  ['a value of another type', { year: '1958' }, '/filter/year/eq'],
  ['null', { year: null }, '/filter/year/eq'],
  ['no condition', { year: {} }, '/filter/year'],
  ['an operator that there is not', { year: { near: 1958 } }, '/filter/year/near'],
  ['an operator that every object has', { year: { toString: 1958 } }, '/filter/year/toString'],
  ['a range of texts', { language: { gt: 1 } }, '/filter/language/gt'],
  ['a bound that is no number', { year: { gte: '1' } }, '/filter/year/gte'],
  ['a list that is none', { year: { in: 1958 } }, '/filter/year/in'],
  ['a list with a value of another type', { year: { in: [1958, true] } }, '/filter/year/in'],
  [
    'a list that is too long',
    { year: { in: Array.from({ length: 1_001 }, (_, one) => one) } },
    '/filter/year/in',
  ],
  ['exists that is neither true nor false', { year: { exists: 1 } }, '/filter/year/exists'],
  ['a list of filters', [{ year: 1958 }], '/filter'],
]

// Users' texts are words, whatever FTS5's query language makes of them.
const texts = [
  '"',
  '""',
  '*',
  'fox*',
  'NEAR(fox, 2)',
  'fox AND',
  'NOT fox',
  'text:fox',
  '^fox',
  "';--",
  '{x}: fox',
].concat(['(((', 'fox + hen', '-fox', '\u0000fox', '\u0301', '😀', '狐', 'fox\nhen'])

/** The bounds that a store may be opened with. */
type Open = (settings?: { mostChunks?: number; mostCollections?: number }) => Promise<OpenStore>

/** What every store refuses. */
export function describeRefusals(title: string, open: () => Promise<OpenStore>): void {
  describe(title, () => {
    let opened: OpenStore
    const store = (): Store => opened.store
    beforeAll(async () => {
      opened = await open()
      await store().createCollection(collection, spec)
      await store().replaceDocument(
        collection,
        embedder,
        documentOf('d', 1, ['the fox', 'the hen'], { year: 1958 }),
      )
    })
    afterAll(async () => {
      expect(await store().stats(collection)).toMatchObject({ documents: 1, chunks: 2 })
      await opened.close()
    })

    test.each(documents)('refuses a document with %s', async (__, document, pointer) => {
      await expect(store().replaceDocument(collection, embedder, document as Document)).rejects.toMatchObject(
        {
          code: 'invalid_input',
          pointer,
        },
      )
    })

    test.each(queries)('refuses a search with %s', async (__, more, pointer) => {
      const refused = store().search(collection, { ...query, ...more })
      await expect(refused).rejects.toMatchObject({ code: 'invalid_input', pointer })
    })

    test.each(filters)('refuses a filter with %s', async (__, filter, pointer) => {
      const refused = store().search(collection, { ...query, filter } as SearchQuery)
      await expect(refused).rejects.toMatchObject({ code: 'invalid_filter', pointer })
    })

    test.each(texts)('takes %j for words', async (text) => {
      const { hits } = await store().search(collection, { mode: 'text', k: 5, text })
      expect(hits.some((hit) => hit.text === 'the fox')).toBe(text.includes('fox'))
    })

    test('looks for the first 64 distinct words of a text', async () => {
      const words = Array.from({ length: 64 }, (__, index) => `word${index}`).join(' ')
      const distinct = { mode: 'text' as const, k: 5, text: `${words} fox` }
      expect((await store().search(collection, distinct)).hits).toEqual([])
      const repeated = { ...distinct, text: `${'word0 '.repeat(5_000)} fox` }
      expect((await store().search(collection, repeated)).hits).toHaveLength(1)
    })

    test.each(['nothing', 'no-such'])('knows no collection %s', async (name) => {
      const unknown = { code: 'collection_not_found' }
      await expect(store().search(name, query)).rejects.toMatchObject(unknown)
      await expect(store().stats(name)).rejects.toMatchObject(unknown)
      await expect(store().snapshot(name)).rejects.toMatchObject(unknown)
      await expect(store().deleteDocument(name, 'd', 1)).rejects.toMatchObject(unknown)
      await expect(store().replaceDocument(name, embedder, documentOf('d', 1, []))).rejects.toMatchObject(
        unknown,
      )
    })

    test.each(['../other', 'a/b', 'a.sqlite', 'A', '-a', 'a\u0000', long(64)])(
      'refuses the name %j of a collection',
      async (name) => {
        const refusal = { code: 'invalid_input', pointer: '/name' }
        await expect(store().createCollection(name, spec)).rejects.toMatchObject(refusal)
        await expect(store().stats(name)).rejects.toMatchObject(refusal)
        await expect(store().snapshot(name)).rejects.toMatchObject(refusal)
        await expect(store().dropCollection(name)).rejects.toMatchObject(refusal)
      },
    )

    const specs: [string, object, string][] = [
      ['no dimensions', { embedder: { ...embedder, dimensions: 0 } }, '/embedder/dimensions'],
      ['too many dimensions', { embedder: { ...embedder, dimensions: 4_097 } }, '/embedder/dimensions'],
      ['no name of the embedder', { embedder: { ...embedder, name: '' } }, '/embedder/name'],
      ['another type of field', { metadata_schema: { year: 'date' } }, '/metadata_schema/year'],
      ['a field with a dot', { metadata_schema: { 'a.b': 'string' } }, '/metadata_schema'],
      ['a field that every object has', { metadata_schema: { constructor: 'string' } }, '/metadata_schema'],
    ]
    test.each(specs)('refuses a collection with %s', async (__, more, pointer) => {
      const refused = store().createCollection('other', { ...spec, ...more })
      await expect(refused).rejects.toMatchObject({ code: 'invalid_input', pointer })
    })
  })
}

/** What a store refuses because it is full. */
export function describeBounds(title: string, open: Open): void {
  describe(title, () => {
    test('a store takes no more chunks than its memory has room for', async () => {
      const opened = await open({ mostChunks: 3 })
      await opened.store.createCollection('a', spec)
      await opened.store.createCollection('b', spec)
      await opened.store.replaceDocument('a', embedder, documentOf('d', 1, ['one', 'two']))
      const full = { code: 'store_full' }
      const two = documentOf('d', 1, ['three', 'four'])
      await expect(opened.store.replaceDocument('b', embedder, two)).rejects.toMatchObject(full)
      await opened.store.deleteDocument('a', 'd', 1)
      expect(await opened.store.replaceDocument('b', embedder, two)).toMatchObject({ outcome: 'replaced' })
      await opened.close()
    })

    test('a store takes no more collections than it is set to', async () => {
      const opened = await open({ mostCollections: 2 })
      for (const name of ['a', 'b', 'a']) await opened.store.createCollection(name, spec)
      await expect(opened.store.createCollection('c', spec)).rejects.toMatchObject({ code: 'store_full' })
      await opened.store.dropCollection('a')
      expect(await opened.store.createCollection('c', spec)).toMatchObject({ documents: 0 })
      await opened.close()
    })
  })
}

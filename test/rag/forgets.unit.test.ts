import { DatabaseSync } from 'node:sqlite'
import { join } from 'node:path'
import { afterEach, expect, test } from '@jest/globals'
import { collectionFile } from '../../images/rag/files.ts'
import type { AsideVector, Document, Embedder } from '../../images/rag/store.ts'
import { bytesOf, normalised } from '../../images/rag/vectors.ts'
import { Dice } from '../support/random.ts'
import { seed } from '../support/sampled.ts'
import { filesWith } from '../support/rag/files.ts'
import { openServer, type ServedStore } from '../support/rag/servers.ts'
import { type OpenStore, openEngine } from '../support/rag/stores.ts'
import { clusteredVectors } from '../support/rag/vectors.ts'

// What is deleted is in no file of the collection any more: its texts, its words in the index, and its vectors.

const embedder: Embedder = { name: 'sample', hash: 'h', dimensions: 96 }
const collection = 'forgetful'
const dice = new Dice(seed)
const letters = 'bcdfghjkmnpqrtvwxz'.split('')
/** No word's beginning, so that the index cannot write it as an end of the word before; and no word has an other form. */
const word = (): string => Array.from({ length: 16 }, () => dice.one(letters)).join('') + '7'

let made = 0
function documentWith(id: string, version: number, words: string[]): Document {
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
const tracesOf = ({ chunks }: Document): Record<string, Uint8Array> =>
  Object.fromEntries(
    chunks.flatMap(({ text, vector }, index) => {
      const unit = bytesOf(normalised(vector as Float32Array) as Float32Array)
      return [
        [`word ${index}`, Buffer.from(text.slice(6, 16))],
        [`vector ${index}`, unit.slice(0, 24)],
        [`end of vector ${index}`, unit.slice(-24)],
      ]
    }),
  )

const words = (count: number): string[] => Array.from({ length: count }, word)

let opened: OpenStore
afterEach(() => opened.close())

const makeEmpty = () => opened.store.createCollection(collection, { embedder, metadata_schema: {} })
async function fill(): Promise<void> {
  await makeEmpty()
  for (let number = 0; number < 20; number++)
    await opened.store.replaceDocument(collection, embedder, documentWith(`other-${number}`, 1, words(5)))
}

const replace = (document: Document) => opened.store.replaceDocument(collection, embedder, document)
const found = (document: Document): string[] =>
  filesWith(join(opened.folder, 'collections'), tracesOf(document))

test('a document that is deleted is in no file', async () => {
  opened = await openEngine()
  await fill()
  const document = documentWith('secret', 1, words(10))
  await replace(document)
  // The search finds what is there: each word in text and index, and each vector.
  expect(new Set(found(document).map((trace) => trace.replace(/ in .*/, ''))).size).toBe(30)
  await opened.store.deleteDocument(collection, 'secret', 1)
  expect(found(document)).toEqual([])
})

test('the chunks that a new version lacks are in no file, and the others are', async () => {
  opened = await openEngine()
  await fill()
  const document = documentWith('secret', 1, words(6))
  await replace(document)
  const [kept, ...gone] = document.chunks
  const next = { ...document, version: 2, chunks: [{ ...(kept as Document['chunks'][0]), vector: null }] }
  await replace(next)
  expect(found({ ...document, chunks: gone })).toEqual([])
  expect(found({ ...next, chunks: document.chunks.slice(0, 1) })).not.toEqual([])
})

const nextEmbedder: Embedder = { ...embedder, hash: 'next' }

/** Gives each chunk a vector of the next embedder. Returns what a file would have in it of some of them. */
async function fillAside(): Promise<Record<string, Uint8Array>> {
  const { chunks } = await opened.store.putAside(collection, nextEmbedder, [], 1_000)
  const vectors = clusteredVectors(chunks.length, {
    dimensions: embedder.dimensions,
    clusters: 1,
    seed: ++made,
  })
  const given: AsideVector[] = chunks.map(({ chunk }, index) => ({
    chunk,
    vector: vectors[index] as Float32Array,
  }))
  await opened.store.putAside(collection, nextEmbedder, given, 0)
  return Object.fromEntries(
    given.slice(-8).map(({ chunk, vector }) => {
      const unit = bytesOf(normalised(vector) as Float32Array)
      return [chunk, unit.slice(0, 24)]
    }),
  )
}

test('the vectors of an embedder that was replaced are in no file, and its texts are', async () => {
  opened = await openEngine()
  await fill()
  const document = documentWith('secret', 1, words(8))
  await replace(document)
  await fillAside()
  expect(await opened.store.useEmbedder(collection, nextEmbedder)).toEqual({ outcome: 'used' })
  const traces = found(document).map((trace) => trace.replace(/ in .*/, ''))
  expect(traces.filter((trace) => trace.includes('vector'))).toEqual([])
  expect(new Set(traces).size).toBe(8)
})

test('vectors aside that are given up, or whose document is deleted, are in no file', async () => {
  opened = await openEngine()
  await fill()
  const files = join(opened.folder, 'collections')
  for (const forget of [
    () => opened.store.deleteDocument(collection, 'secret', 1),
    () => opened.store.useEmbedder(collection, embedder),
  ]) {
    await replace(documentWith('secret', 1, words(8)))
    const traces = await fillAside()
    expect(new Set(filesWith(files, traces).map((trace) => trace.replace(/ in .*/, ''))).size).toBe(8)
    await forget()
    expect(filesWith(files, traces)).toEqual([])
    await opened.store.dropCollection(collection)
    await makeEmpty()
  }
})

test('a collection that is dropped is in no file of the store', async () => {
  opened = await openEngine()
  await fill()
  const document = documentWith('secret', 1, words(3))
  await replace(document)
  await opened.store.snapshot(collection)
  await opened.store.dropCollection(collection)
  expect(filesWith(opened.folder, tracesOf(document))).toEqual([])
})

test('a snapshot keeps what is deleted later, until the next one', async () => {
  opened = await openEngine()
  await fill()
  const document = documentWith('secret', 1, words(3))
  await replace(document)
  const { path } = await opened.store.snapshot(collection)
  await opened.store.deleteDocument(collection, 'secret', 1)
  expect(filesWith(opened.folder, tracesOf(document))).not.toEqual([])
  const copy = new DatabaseSync(join(opened.folder, path), { readOnly: true })
  expect(copy.prepare("SELECT count(*) AS n FROM words WHERE words MATCH 'common'").get()).toEqual({ n: 103 })
  copy.close()
  await opened.store.snapshot(collection)
  expect(filesWith(opened.folder, tracesOf(document))).toEqual([])
})

test('a store that was killed between a deletion and the emptying of its log has forgotten once it is back', async () => {
  const served: ServedStore = await openServer()
  opened = served
  await fill()
  const document = documentWith('secret', 1, words(5))
  await replace(document)
  // A reader of another process keeps the log from being emptied: the deletion is in it, and waits.
  const reader = new DatabaseSync(collectionFile(served.folder, collection), { readOnly: true })
  reader.exec('BEGIN')
  reader.prepare('SELECT count(*) FROM chunks').get()
  const deletion = served.store.deleteDocument(collection, 'secret', 1).catch(() => 'killed')
  for (let chunks = 105; chunks > 100; ) chunks = (await served.store.stats(collection)).chunks
  expect(found(document)).not.toEqual([])
  const killed = served.kill()
  expect(await deletion).toBe('killed')
  reader.close()
  await killed
  await served.store.stats(collection) // it is loaded
  expect(found(document)).toEqual([])
})

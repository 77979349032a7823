import { DatabaseSync } from 'node:sqlite'
import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, expect, test } from '@jest/globals'
import { collectionFile } from '../../images/rag/files.ts'
import type { Embedder, Hit } from '../../images/rag/store.ts'
import { isLong } from '../support/long.ts'
import { Dice } from '../support/random.ts'
import { seed } from '../support/sampled.ts'
import { fillAside, nextEmbedder } from '../support/rag/conformance-asides.ts'
import { documentOf, embedder, spec, vectorOf } from '../support/rag/samples.ts'
import { openServer, type ServedStore } from '../support/rag/servers.ts'

// The store's process is killed while it writes a document: it has the old one or the new one afterwards.

const collection = 'killed'
const rounds = isLong ? 100 : 12
const dice = new Dice(seed)

let served: ServedStore
afterEach(() => served.close())

/** Versions have different numbers of chunks, and half of the chunks of the one before. */
const sizes = [300, 120, 480]
const sizeOf = (version: number): number => sizes[version % sizes.length] as number
const documentAt = (version: number) =>
  documentOf(
    'd',
    version,
    Array.from({ length: sizeOf(version) }, (_, index) =>
      index % 2 ? `common chunk ${index}` : `common chunk ${index} of version ${version}`,
    ),
  )

async function found(): Promise<{ byText: Hit[]; byVector: Hit[] }> {
  const { hits: byText } = await served.store.search(collection, { mode: 'text', k: 1000, text: 'common' })
  const { hits: byVector } = await served.store.search(collection, {
    mode: 'vector',
    k: 1000,
    vector: vectorOf('x'),
    embedder,
  })
  return { byText, byVector }
}

/** The version that is there. Fails unless all of it is there, once, and nothing else. */
async function wholeVersion(): Promise<number> {
  const { byText, byVector } = await found()
  const version = byText[0]?.version ?? 0
  const expected = documentAt(version).chunks.map(({ text }, position) => ({ version, position, text }))
  for (const hits of [byText, byVector]) {
    const seen = hits.map((hit) => ({ version: hit.version, position: hit.position, text: hit.text }))
    expect(seen.toSorted((a, b) => a.position - b.position)).toEqual(expected)
  }
  return version
}

/** Chunks, vectors and the index of words say the same. */
function checkFile(): void {
  const database = new DatabaseSync(collectionFile(served.folder, collection))
  const count = (sql: string): unknown => database.prepare(`SELECT count(*) AS n FROM (${sql})`).get()?.['n']
  expect(database.prepare('PRAGMA integrity_check').get()).toEqual({ integrity_check: 'ok' })
  database.exec("INSERT INTO words (words, rank) VALUES ('integrity-check', 1)") // throws
  expect(count('SELECT id FROM chunks EXCEPT SELECT id FROM vectors')).toBe(0)
  expect(count('SELECT id FROM vectors EXCEPT SELECT id FROM chunks')).toBe(0)
  expect(count('SELECT document FROM chunks EXCEPT SELECT number FROM documents')).toBe(0)
  database.close()
}

test('a store that is killed while it replaces a document has all of the old or all of the new one', async () => {
  served = await openServer()
  await served.store.createCollection(collection, spec)
  const began = performance.now()
  await served.store.replaceDocument(collection, embedder, documentAt(1))
  const tookMs = performance.now() - began
  let version = 1
  const seen = { old: 0, new: 0 }
  for (let round = 0; round < rounds; round++) {
    const next = version + 1
    const replaced = served.store.replaceDocument(collection, embedder, documentAt(next)).then(
      () => true,
      () => false,
    )
    // A moment of the replacement, drawn by the seed.
    await delay(dice.number(Math.ceil(tookMs)))
    await served.kill()
    const acknowledged = await replaced
    const now = await wholeVersion()
    expect([version, next]).toContain(now)
    if (acknowledged) expect(now).toBe(next)
    seen[now === next ? 'new' : 'old']++
    version = now
  }
  expect(seen.old + seen.new).toBe(rounds)
  // What was killed can be sent again.
  await served.store.replaceDocument(collection, embedder, documentAt(version + 1))
  expect(await wholeVersion()).toBe(version + 1)
  await served.stop()
  checkFile()
})

test('a store that is killed while it changes its embedder has the former one or the next one', async () => {
  served = await openServer()
  await served.store.createCollection(collection, spec)
  await served.store.replaceDocument(collection, embedder, documentAt(2))
  const both = [embedder, nextEmbedder]
  for (let round = 0; round < rounds / 2; round++) {
    const [now, next] = both.toSorted((a) => (a === both[round % 2] ? -1 : 1)) as [Embedder, Embedder]
    // First, a moment of the way there.
    const filling = fillAside(served.store, collection, 50, next).catch(() => 'killed')
    await delay(dice.number(100))
    await served.kill()
    await filling
    await fillAside(served.store, collection, 200, next)
    const using = served.store.useEmbedder(collection, next).then(
      () => true,
      () => false,
    )
    await delay(dice.number(20))
    await served.kill()
    const acknowledged = await using
    const { embedder: used, chunks } = await served.store.stats(collection)
    expect(chunks).toBe(sizeOf(2))
    if (acknowledged) expect(used).toEqual(next)
    else expect(both).toContainEqual(used)
    const { hits } = await served.store.search(collection, {
      mode: 'vector',
      k: 1,
      vector: vectorOf('common chunk 7', used.dimensions),
      embedder: used,
    })
    expect(hits).toMatchObject([{ text: 'common chunk 7', score: expect.closeTo(1) }])
    if (used.name === now.name)
      expect(await served.store.useEmbedder(collection, next)).toEqual({ outcome: 'used' })
  }
  await served.stop()
  checkFile()
})

test('a store that is killed while it creates or drops a collection has it or not', async () => {
  served = await openServer()
  for (let round = 0; round < rounds / 2; round++) {
    const call =
      round % 2 ? served.store.dropCollection(collection) : served.store.createCollection(collection, spec)
    const ended = call.then(
      () => true,
      () => false,
    )
    await delay(dice.number(20))
    await served.kill()
    await ended
    const { documents } = await served.store.createCollection(collection, spec)
    expect(documents).toBe(0)
    await served.store.replaceDocument(collection, embedder, documentOf(`d-${round}`, 1, ['one']))
    await served.store.dropCollection(collection)
    if (round % 2 === 0) await served.store.createCollection(collection, spec)
  }
  expect(await served.store.health()).toEqual({ ready: true, reason: null })
})

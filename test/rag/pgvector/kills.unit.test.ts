import { execFileSync } from 'node:child_process'
import { mkdirSync, readdirSync, readFileSync, readlinkSync } from 'node:fs'
import { chmod, rm } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { afterEach, expect, test } from '@jest/globals'
import { Client } from 'pg'
import type { StoreError } from '../../../images/rag/errors.ts'
import { Dice } from '../../support/random.ts'
import { isLong } from '../../support/long.ts'
import { seed } from '../../support/sampled.ts'
import { fillAside, nextEmbedder } from '../../support/rag/conformance-asides.ts'
import { filesWith } from '../../support/rag/files.ts'
import {
  collection as forgetful,
  documentWith,
  fill,
  replace,
  tracesOf,
  words,
} from '../../support/rag/forgetting.ts'
import { describePgvector, openPgvectorAt, openPgvectorServer } from '../../support/rag/pgvector.ts'
import { embedder, spec, vectorOf } from '../../support/rag/samples.ts'
import type { ServedStore } from '../../support/rag/servers.ts'
import { makeFolder } from '../../support/rag/stores.ts'
import { documentAt, sizeOf, wholeVersion } from '../../support/rag/versions.ts'

// The store, its database, or both are killed. PostgreSQL runs as a child of the store's process, and outlives it here: in a
// container, all processes end with the first.

const collection = 'killed'
const dice = new Dice(seed)

let served: ServedStore

/** PostgreSQL's processes; the first is the postmaster. */
function databaseProcesses(): number[] {
  const data = join(served.folder, 'postgresql')
  const first = Number.parseInt(readFileSync(join(data, 'postmaster.pid'), 'utf8'), 10)
  const others = readdirSync('/proc').map(Number).filter(Number.isInteger)
  return [first, ...others.filter((pid) => pid !== first && worksIn(pid, data))]
}

function worksIn(pid: number, folder: string): boolean {
  try {
    return readlinkSync(`/proc/${pid}/cwd`) === folder
  } catch {
    return false // it has ended
  }
}

function kill(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL')
  } catch {
    // It has ended by itself.
  }
}

const kills: Record<string, () => Promise<void>> = {
  async postmaster() {
    kill(databaseProcesses()[0] as number)
  },
  async 'process of the database'() {
    kill(dice.one(databaseProcesses().slice(1)))
  },
  store: () => served.kill(),
  async 'store and database'() {
    for (const pid of databaseProcesses()) kill(pid)
    await served.kill()
  },
}

/** Repeats a call while the database is away: it may end a moment after a process of it was killed. */
async function patiently<T>(call: () => Promise<T>): Promise<T> {
  for (;;) {
    try {
      return await call()
    } catch (error) {
      if ((error as Partial<StoreError>).code !== 'unavailable') throw error
      await delay(20)
    }
  }
}

const present = (): Promise<number> => patiently(() => wholeVersion(served.store, collection))

/** Chunks, vectors and places say the same. */
async function checkTables(set = 1): Promise<void> {
  const client = new Client({ host: join(served.folder, 'socket'), user: 'store', database: 'postgres' })
  await client.connect()
  const { rows } = await client.query(`
    SELECT (SELECT count(*) FROM c1.chunks c FULL JOIN c1.vectors_${set} v USING (id) WHERE c.id IS NULL OR v.id IS NULL)::int AS one,
      (SELECT count(*) FROM c1.chunks c FULL JOIN c1.places_${set} p USING (id) WHERE c.id IS NULL OR p.id IS NULL)::int AS two,
      (SELECT count(*) FROM c1.chunks)::int AS chunks, (SELECT sum(length)::int FROM c1.chunks) AS words,
      collections.chunks::int AS noted, collections.words::int AS noted_words FROM collections`)
  await client.end()
  const [row] = rows as Record<string, number>[]
  expect(row).toMatchObject({ one: 0, two: 0, noted: row?.['chunks'], noted_words: row?.['words'] })
}

describePgvector('pgvector', () => {
  afterEach(() => served.close())

  test.each(Object.keys(kills))('a %s that is killed while a document is replaced', async (victim) => {
    served = await openPgvectorServer()
    await served.store.createCollection(collection, spec)
    const began = performance.now()
    await served.store.replaceDocument(collection, embedder, documentAt(1))
    const tookMs = performance.now() - began
    let version = 1
    for (let round = 0; round < (isLong ? 25 : 3); round++) {
      const next = version + 1
      const replaced = served.store.replaceDocument(collection, embedder, documentAt(next)).then(
        () => true,
        () => false,
      )
      await delay(dice.number(Math.ceil(tookMs)))
      await kills[victim]?.()
      const acknowledged = await replaced
      const now = await present()
      expect([version, next]).toContain(now)
      if (acknowledged) expect(now).toBe(next)
      version = now
    }
    // What was killed can be sent again.
    await patiently(() => served.store.replaceDocument(collection, embedder, documentAt(version + 1)))
    expect(await present()).toBe(version + 1)
    await checkTables()
  })

  test('a store that is killed while it changes its embedder has the former one or the next one', async () => {
    served = await openPgvectorServer()
    await served.store.createCollection(collection, spec)
    await served.store.replaceDocument(collection, embedder, documentAt(2))
    const filling = fillAside(served.store, collection, 50).catch(() => 'killed')
    await delay(dice.number(100))
    await kills['store and database']?.()
    await filling
    await patiently(() => fillAside(served.store, collection, 200))
    const using = served.store.useEmbedder(collection, nextEmbedder).then(
      () => true,
      () => false,
    )
    await delay(dice.number(50))
    await kills['postmaster']?.()
    const acknowledged = await using
    const { embedder: used, chunks } = await patiently(() => served.store.stats(collection))
    expect(chunks).toBe(sizeOf(2))
    expect(acknowledged ? [nextEmbedder] : [embedder, nextEmbedder]).toContainEqual(used)
    const query = {
      mode: 'vector' as const,
      k: 1,
      vector: vectorOf('common chunk 7', used.dimensions),
      embedder: used,
    }
    const { hits } = await patiently(() => served.store.search(collection, query))
    expect(hits).toMatchObject([{ text: 'common chunk 7', score: expect.closeTo(1) }])
    expect(await patiently(() => served.store.useEmbedder(collection, nextEmbedder))).toEqual({
      outcome: 'used',
    })
    await checkTables(2)
  })

  test('a store that was killed between a deletion and the forgetting has forgotten once it is back', async () => {
    served = await openPgvectorServer()
    await fill(served)
    const document = documentWith('secret', 1, words(5))
    await replace(served, document)
    const found = () => filesWith(served.folder, tracesOf(document))
    // PostgreSQL keeps what a transaction may still see: the deletion waits for this one.
    const reader = new Client({ host: join(served.folder, 'socket'), user: 'store', database: 'postgres' })
    reader.on('error', () => {}) // it is ended with the database
    await reader.connect()
    await reader.query('BEGIN ISOLATION LEVEL REPEATABLE READ')
    await reader.query('SELECT 1')
    const deletion = served.store.deleteDocument(forgetful, 'secret', 1).catch(() => 'killed')
    for (let chunks = 105; chunks > 100; ) ({ chunks } = await served.store.stats(forgetful))
    expect(found()).not.toEqual([])
    const killed = served.kill()
    expect(await deletion).toBe('killed')
    await killed
    await served.store.stats(forgetful) // it has started
    expect(found()).toEqual([])
  })

  test('a copy of the disk at one moment, in the middle of a replacement, has a whole document', async () => {
    served = await openPgvectorServer()
    await served.store.createCollection(collection, spec)
    await served.store.replaceDocument(collection, embedder, documentAt(1))
    const state = { version: 1, ended: false }
    const replacing = (async () => {
      for (; !state.ended; state.version++)
        await served.store.replaceDocument(collection, embedder, documentAt(state.version + 1))
    })()
    for (let copies = 0; copies < 3; copies++) {
      await delay(dice.number(200))
      const parent = await makeFolder()
      await chmod(parent, 0o711)
      const copy = join(parent, 'store')
      // Nothing is written meanwhile: what is copied is the disk at one moment.
      const stopped = databaseProcesses()
      for (const pid of stopped) process.kill(pid, 'SIGSTOP')
      const before = state.version
      mkdirSync(copy)
      execFileSync('cp', ['-a', `${served.folder}/.`, copy])
      for (const pid of stopped) process.kill(pid, 'SIGCONT')
      const other = openPgvectorAt(copy)
      const version = await wholeVersion(other, collection)
      expect([before - 1, before, before + 1]).toContain(version)
      await other.close()
      await rm(parent, { recursive: true })
    }
    state.ended = true
    await replacing
  })
})

import { readFileSync } from 'node:fs'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { SqliteStore } from '../../../images/rag/engine.ts'
import type { Embedder, SearchQuery, Store } from '../../../images/rag/store.ts'
import { machine, quantile, type Row, table, timed } from '../measure.ts'
import { clusteredVectors, zipfText } from './clustered.ts'
import { recallOfScan } from './exact.ts'
import { startBenchServer } from './server.ts'

// The store of retrieval, without a platform: `node script/benchmarks/retrieval/store.ts` measures it alone.

export const count = 20_000
export const perDocument = 20
/** Of all vectors, for the memory of 100,000. */
const copies = 5
export const searches = 300
/** Exact search takes its time. */
export const recallSearches = 100
export const wordsPerChunk = 100
export const wordsPerQuery = 8
export const embedder: Embedder = { name: 'bench', hash: 'bench', dimensions: 384 }
const { random } = Math

/** 20,000 × 384 vectors by TLS and in this process. */
export async function retrievalStore(): Promise<Row[]> {
  const made = clusteredVectors(count + searches, { dimensions: 384, clusters: 200, random })
  const asked = made.splice(count).map((vector) => ({ vector, text: zipfText(wordsPerQuery, random) }))
  return [...(await served(made, asked)), ...(await inProcess(made, asked))]
}

type Asked = { vector: Float32Array; text: string }[]

async function served(vectors: Float32Array[], asked: Asked): Promise<Row[]> {
  const server = await startBenchServer()
  try {
    const tookMs = await timed(() => fill(server.client, vectors))
    const rows = await searchRows('by TLS', () => server.client, asked)
    for (let copy = 1; copy < copies; copy++) await fill(server.client, vectors, copy)
    const startMs = await server.restart()
    const full = ownMib(server.pid)
    await server.client.dropCollection('c')
    await server.restart()
    const used = full - ownMib(server.pid)
    return [
      {
        what: 'chunks of 384 dimensions and 100 words in, by TLS',
        unit: '1/s',
        figures: [(count / tookMs) * 1000],
        note: '> 2340',
      },
      ...rows,
      { what: 'start with 100,000 chunks', unit: 'ms', figures: [startMs] },
      { what: 'memory of 100,000 chunks', unit: 'MiB', figures: [used] },
    ]
  } finally {
    await server.stop()
  }
}

/** The memory of a process without pages of files, which the kernel takes back where memory is short. */
function ownMib(pid: number): number {
  const [, kib] = /RssAnon:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8')) ?? []
  return Number(kib) / 1024
}

async function inProcess(vectors: Float32Array[], asked: Asked): Promise<Row[]> {
  return inFolder(async (store) => {
    const tookMs = await timed(() => fill(store, vectors))
    return [
      { what: 'the same, in this process', unit: '1/s', figures: [(count / tookMs) * 1000] },
      ...(await searchRows('in this process', () => store, asked)),
      ...(await recallRows(store, vectors, asked)),
    ]
  })
}

/** Of a document's id in the first copy. */
const tenthOf = (document: string): number => Number(document.slice(2)) % 10

async function recallRows(store: Store, vectors: Float32Array[], asked: Asked): Promise<Row[]> {
  const placed = vectors.map((vector, index) => ({
    document: `0-${Math.floor(index / perDocument)}`,
    position: index % perDocument,
    vector,
  }))
  const filters = [
    { name: 'all', leaves: () => true },
    { name: 'a tenth by a filter', filter: { tenth: 3 }, leaves: (one: string) => tenthOf(one) === 3 },
  ]
  const rows: Row[] = []
  for (const { name, ...by } of filters) {
    const questions = asked.slice(0, recallSearches).map(({ vector }) => vector)
    const recall = await recallOfScan(store, { collection: 'c', embedder, placed }, questions, by)
    rows.push({
      what: `search of ${count.toLocaleString('en')}, vector, ${name}: recall@10 against exact search`,
      unit: '',
      figures: [recall],
      note: '≥ 0.98',
    })
  }
  return rows
}

export async function fill(store: Store, vectors: Float32Array[], copy = 0): Promise<void> {
  await store.createCollection('c', { embedder, metadata_schema: { tenth: 'number' } })
  for (let document = 0; document * perDocument < vectors.length; document++)
    await store.replaceDocument('c', embedder, {
      id: `${copy}-${document}`,
      version: 1,
      metadata: { tenth: document % 10 },
      chunks: vectors.slice(document * perDocument, (document + 1) * perDocument).map((vector, index) => ({
        hash: String(index),
        text: zipfText(wordsPerChunk, random),
        locator: { page: index },
        vector,
      })),
    })
}

/** p50 and p99 of each mode. The first words that are asked for are new to the store: they are in the p99. */
export async function searchRows(where: string, store: () => Store, asked: Asked): Promise<Row[]> {
  const modes: [string, Pick<SearchQuery, 'mode' | 'filter'>][] = [
    ['vector', { mode: 'vector' }],
    ['vector, a tenth by a filter', { mode: 'vector', filter: { tenth: 3 } }],
    ['text', { mode: 'text' }],
    ['hybrid', { mode: 'hybrid' }],
  ]
  const rows: Row[] = []
  for (const [name, query] of modes) {
    const took: number[] = []
    for (const { vector, text } of asked)
      took.push(await timed(() => store().search('c', { ...query, k: 10, text, vector, embedder })))
    for (const share of [0.5, 0.99])
      rows.push({
        what: `search of ${count.toLocaleString('en')}, ${name}, ${where}, p${share * 100}`,
        unit: 'ms',
        figures: [quantile(took, share)],
        ...(share === 0.5 && { note: '< 2.3' }),
      })
  }
  return rows
}

/** Runs the work with a store of its own. */
export type WithStore = <T>(work: (store: Store) => Promise<T>) => Promise<T>

/** A store in this process, in a folder of its own. */
export async function inFolder<T>(work: (store: Store) => Promise<T>): Promise<T> {
  const folder = await mkdtemp(join(tmpdir(), 'keelson-bench-rag-'))
  const store = new SqliteStore({ folder, mostChunks: 1_000_000, mostCollections: 10 })
  try {
    return await work(store)
  } finally {
    await store.close()
    await rm(folder, { recursive: true })
  }
}

if (import.meta.main) {
  console.log(`${new Date().toISOString().slice(0, 10)}, ${machine()}\n\n${table(await retrievalStore())}`)
}

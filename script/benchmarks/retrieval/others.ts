import type { Store } from '../../../images/rag/store.ts'
import { machine, quantile, type Row, table, timed } from '../measure.ts'
import { clusteredVectors, zipfText } from './clustered.ts'
import { exactNearest } from './exact.ts'
import { openChroma, openSqliteVec, openUsearch, type OtherStore } from './others/stores.ts'
import { startBenchServer } from './server.ts'
import { count, embedder, inFolder, perDocument, recallSearches, searches, wordsPerChunk } from './store.ts'

// The store of retrieval beside others, on the same vectors and questions, without a platform:
// `node script/benchmarks/retrieval/others.ts`. All are asked in turns, so that each has the machine as busy as the others.

/** Chunks at once. Ours gets those of one document, so this is to the advantage of the others. */
const perAdd = 1_000
const { random } = Math

/** 20,000 × 384 vectors: in per second, p50, p99 and CPU time of a search by vector, and how exact it is. */
export async function retrievalOthers(): Promise<Row[]> {
  const vectors = clusteredVectors(count + searches, { dimensions: 384, clusters: 200, random })
  const asked = vectors.splice(count)
  const texts = vectors.map(() => zipfText(wordsPerChunk, random))
  return inFolder(async (own) => {
    const server = await startBenchServer()
    const stores = [
      ours('this store, in this process', own, true),
      ours('this store, by TLS', server.client, false),
      ...(await openAll([openSqliteVec, openUsearch, openChroma])),
    ]
    try {
      const rows: Row[] = []
      for (const store of stores) rows.push(await fillRow(store, vectors, texts))
      return [...rows, ...(await searchRows(stores, asked)), ...(await recallRows(stores, vectors, asked))]
    } finally {
      for (const store of stores) await store.close()
      await server.stop()
    }
  })
}

interface Measured {
  title: string
  /** In this process, so that the CPU time of a search is known. */
  isHere: boolean
  perAdd: number
  add: OtherStore['add']
  search: OtherStore['search']
  close(): Promise<void>
}

async function openAll(opens: (() => Promise<OtherStore>)[]): Promise<Measured[]> {
  const opened: Measured[] = []
  for (const open of opens)
    try {
      const { title, where, ...store } = await open()
      opened.push({ ...store, perAdd, title: `${title}, ${where}` })
    } catch (error) {
      console.error(
        `${open.name} fails, and is left out: ${error instanceof Error ? error.message : String(error)}`,
      )
    }
  return opened
}

function ours(title: string, store: Store, isHere: boolean): Measured {
  const made = store.createCollection('c', { embedder, metadata_schema: {} })
  return {
    title,
    isHere,
    perAdd: perDocument,
    async add(from, vectors, texts) {
      await made
      const chunks = vectors.map((vector, index) => ({
        hash: String(index),
        text: texts[index] as string,
        locator: { page: index },
        vector,
      }))
      await store.replaceDocument('c', embedder, { id: String(from), version: 1, metadata: {}, chunks })
    },
    async search(vector) {
      const { hits } = await store.search('c', { mode: 'vector', k: 10, vector, embedder })
      return hits.map(({ document_id, position }) => Number(document_id) + position)
    },
    close: async () => {},
  }
}

async function fillRow(store: Measured, vectors: Float32Array[], texts: string[]): Promise<Row> {
  const tookMs = await timed(async () => {
    for (let from = 0; from < count; from += store.perAdd)
      await store.add(from, vectors.slice(from, from + store.perAdd), texts.slice(from, from + store.perAdd))
  })
  return {
    what: `vectors in, ${store.perAdd} in a call: ${store.title}`,
    unit: '1/s',
    figures: [(count / tookMs) * 1000],
    ...(store.perAdd === perDocument && { note: '> 2340' }),
  }
}

async function searchRows(stores: Measured[], asked: Float32Array[]): Promise<Row[]> {
  const took = stores.map((): number[] => [])
  const cpu = stores.map((): number[] => [])
  for (const vector of asked)
    for (const [place, store] of stores.entries()) {
      const begun = process.cpuUsage()
      took[place]?.push(await timed(() => store.search(vector)))
      const { user, system } = process.cpuUsage(begun)
      cpu[place]?.push((user + system) / 1000)
    }
  return stores.flatMap(({ title, perAdd: its, isHere }, place) => [
    ...[0.5, 0.99].map((share) => ({
      what: `search of ${count.toLocaleString('en')} by vector, p${share * 100}: ${title}`,
      unit: 'ms',
      figures: [quantile(took[place] ?? [], share)],
      ...(its === perDocument && share === 0.5 && { note: '< 2.3, ahead of each' }),
    })),
    ...(isHere ? [{ what: `the same, CPU time: ${title}`, unit: 'ms', figures: cpu[place] ?? [] }] : []),
  ])
}

async function recallRows(
  stores: Measured[],
  vectors: Float32Array[],
  asked: Float32Array[],
): Promise<Row[]> {
  const found = stores.map(() => 0)
  for (const vector of asked.slice(0, recallSearches)) {
    const nearest = exactNearest(vectors, vector, 10)
    for (const [place, store] of stores.entries())
      found[place] =
        (found[place] ?? 0) + (await store.search(vector)).filter((one) => nearest.has(one)).length
  }
  return stores.map(({ title }, place) => ({
    what: `recall@10 against exact search: ${title}`,
    unit: '',
    figures: [(found[place] ?? 0) / (recallSearches * 10)],
  }))
}

if (import.meta.main) {
  console.log(`${new Date().toISOString().slice(0, 10)}, ${machine()}\n\n${table(await retrievalOthers())}`)
  process.exit() // the writer's thread of the store
}

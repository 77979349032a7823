import { chmod, mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { PgvectorStore } from '../../../images/rag/pgvector/engine.ts'
import type { Embedder, Store } from '../../../images/rag/store.ts'
import { machine, quantile, type Row, table, timed } from '../measure.ts'
import { clusteredVectors, zipfText } from './clustered.ts'
import { abstracts, cranfieldQuality, lackOfCranfield, putAbstracts } from './cranfield.ts'
import { count, embedder, fill, searches, searchRows, type WithStore, wordsPerQuery } from './store.ts'

// The engine for many documents, in this process: `node script/benchmarks/retrieval/pgvector.ts [copies]`. Each copy has 20,000 × 384
// vectors. Needs the database of `script/bootstrap --tests`.

const programs = resolve(
  process.env['KEELSON_TOOLS'] ?? '.state/tools',
  'pgvector/wrapped/usr/lib/postgresql/17/bin',
)
const nobody = 65_534
const removals = 20
const { random } = Math

async function measured(copies: number): Promise<Row[]> {
  const made = clusteredVectors(count + searches, { dimensions: 384, clusters: 200, random })
  const asked = made.splice(count).map((vector) => ({ vector, text: zipfText(wordsPerQuery, random) }))
  return inFolder(async (store, again) => {
    const took: number[] = []
    for (let copy = 0; copy < copies; copy++) took.push(await timed(() => fill(store(), made, copy)))
    const rows: Row[] = [
      {
        what: 'chunks of 384 dimensions and 100 words in',
        unit: '1/s',
        figures: took.map((ms) => (count / ms) * 1000),
      },
      ...(await searchRows(`${copies * count} chunks, as it is set`, store, asked)),
    ]
    await again(0)
    rows.push(...(await searchRows(`${copies * count} chunks, by the index`, store, asked)))
    const deletions: number[] = []
    for (let document = 0; document < removals; document++)
      deletions.push(await timed(() => store().deleteDocument('c', `0-${document * 7}`, 1)))
    rows.push(
      { what: 'a document is deleted and forgotten, p50', unit: 'ms', figures: [quantile(deletions, 0.5)] },
      { what: 'the same, the slowest', unit: 'ms', figures: [Math.max(...deletions)] },
      {
        what: 'bytes of a chunk on the disk',
        unit: 'B',
        figures: [(await store().stats('c')).bytes / (copies * count)],
      },
    )
    return rows
  })
}

async function inFolder<T>(
  work: (store: () => Store, again: (exactUpTo: number) => Promise<void>) => Promise<T>,
): Promise<T> {
  const parent = await mkdtemp(join(tmpdir(), 'keelson-bench-rag-'))
  await chmod(parent, 0o711)
  const open = (exactUpTo?: number) =>
    new PgvectorStore({
      folder: join(parent, 'store'),
      programs,
      user: process.getuid?.() === 0 ? nobody : null,
      mostChunks: 10_000_000,
      mostCollections: 10,
      ...(exactUpTo !== undefined && { exactUpTo }),
    })
  let store = open()
  try {
    return await work(
      () => store,
      async (exactUpTo) => {
        await store.close()
        store = open(exactUpTo)
      },
    )
  } finally {
    await store.close()
    await rm(parent, { recursive: true })
  }
}

/** Full text alone. */
async function quality(withStore: WithStore): Promise<Row[]> {
  const lack = lackOfCranfield()
  if (lack) {
    console.error(`Cranfield is left out: ${lack}`)
    return []
  }
  return withStore(async (store) => {
    const short: Embedder = { ...embedder, dimensions: 1 }
    await store.createCollection('cranfield', { embedder: short, metadata_schema: {} })
    const documents = abstracts().map(({ title, text, ...one }) => ({
      ...one,
      title,
      text,
      metadata: {},
      chunks: [{ hash: String(one.id), text: `${title}\n${text}`, locator: {}, vector: Float32Array.of(1) }],
    }))
    await putAbstracts(store, 'cranfield', short, documents)
    const { ndcg10, recall10 } = await cranfieldQuality(store, 'cranfield', (text) => ({
      mode: 'text',
      text,
    }))
    return [
      { what: 'Cranfield, text: nDCG@10', unit: '', figures: [ndcg10] },
      { what: 'Cranfield, text: recall@10', unit: '', figures: [recall10] },
    ]
  })
}

const rows = [
  ...(await measured(Number(process.argv[2] ?? 1))),
  ...(await quality((work) => inFolder((store) => work(store())))),
]
// The goals are those of the other engine.
const withoutGoals = rows.map(({ what, unit, figures }) => ({ what, unit, figures }))
console.log(`${new Date().toISOString().slice(0, 10)}, ${machine()}\n\n${table(withoutGoals)}`)

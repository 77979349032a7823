import { createHash } from 'node:crypto'
import { join } from 'node:path'
import { chunksOf } from '../../../drivers/documents/chunks.ts'
import { markdownPieces } from '../../../drivers/documents/markdown.ts'
import type { Embedder as Model } from '../../../drivers/embedders.ts'
import { TextTooLong } from '../../../drivers/errors.ts'
import makeTokenizer from '../../../drivers/onnx/document-tokenizer.ts'
import { openEmbedder } from '../../../drivers/onnx/embedder.ts'
import { readEmbedder } from '../../../drivers/onnx/files.ts'
import type { Embedder, Filter, Store } from '../../../images/rag/store.ts'
import { embedChunks } from '../../../models/retrieval/embedding.ts'
import { ModelFailed, type Embeddings } from '../../../models/retrieval/embeddings.ts'
import { readLayout } from '../../lib/settings.ts'
import { machine, type Row, table } from '../measure.ts'
import {
  type Abstract,
  type AbstractChunks,
  abstracts,
  cranfieldQuality,
  lackOfCranfield,
  putAbstracts,
  questions,
} from './cranfield.ts'
import { recallOfScan } from './exact.ts'
import { inFolder } from './store.ts'

// How well searches find what answers a question, without a platform: `node script/benchmarks/retrieval/quality.ts`. The
// embedder, the division of documents and the store are those of the platform.

const threads = 2
const tokensPerChunk = 220
const textsAtOnce = 32

type Divide = (abstract: Abstract) => Promise<{ hash: string; text: string }[]>

/** Cranfield: each abstract in one chunk, and as an upload in Markdown is divided. */
export async function retrievalQuality(): Promise<Row[]> {
  const lack = lackOfCranfield()
  if (lack) {
    console.error(`Cranfield is left out: ${lack}`)
    return []
  }
  const folder = join(readLayout().tools, 'embedder')
  const model = openEmbedder(await readEmbedder(folder), threads)
  const tokenizer = makeTokenizer({ folder })
  const divided: Divide = async ({ title, text }) => {
    const upload = new TextEncoder().encode(`# ${title.replaceAll(/\s+/g, ' ')}\n\n${text}\n`)
    return Array.fromAsync(
      chunksOf(markdownPieces(upload), tokenizer, { tokens: tokensPerChunk, chunks: 1_000 }),
    )
  }
  try {
    return [...(await rowsOf('in one chunk', whole, model)), ...(await rowsOf('divided', divided, model))]
  } finally {
    await model.close()
  }
}

const whole: Divide = async ({ title, text }) => [chunkOf(`${title}\n${text}`)]
const chunkOf = (text: string) => ({ hash: createHash('sha256').update(text).digest('hex'), text })

async function rowsOf(how: string, divide: Divide, model: Model): Promise<Row[]> {
  const documents = await embedded(model, divide)
  const asked = (await model.embed(questions().map(({ text }) => text))).vectors
  const { name, hash, dimensions } = model.facts
  const embedder: Embedder = { name, hash, dimensions }
  return inFolder(async (store) => {
    await store.createCollection('c', { embedder, metadata_schema: { tenth: 'number' } })
    await putAbstracts(store, 'c', embedder, documents)
    return [
      ...(await qualityRows(how, store, { embedder, asked })),
      ...(await recallRows(how, store, { embedder, asked, documents })),
    ]
  })
}

async function embedded(model: Model, divide: Divide): Promise<AbstractChunks[]> {
  const documents = []
  for (const one of abstracts()) documents.push({ one, chunks: await divide(one) })
  const texts = documents.flatMap(({ chunks }) => chunks.map(({ text }) => text))
  const vectors = (await embeddedLikeUploads(model, texts)).values()
  return documents.map(({ one, chunks }) => ({
    ...one,
    metadata: { tenth: one.id % 10 },
    chunks: chunks.map(({ hash, text }) => ({
      hash,
      text,
      locator: {},
      vector: vectors.next().value as Float32Array,
    })),
  }))
}

/** What is too long for the model gets the mean of its parts' vectors. */
async function embeddedLikeUploads(model: Model, texts: string[]): Promise<Float32Array[]> {
  const embeddings: Pick<Embeddings, 'embed'> = {
    embed: (some) =>
      model.embed(some).catch((error: unknown) => {
        if (!(error instanceof TextTooLong)) throw error
        const { code, message } = error
        throw new ModelFailed(message, { code, permanent: true, status: 400 })
      }),
  }
  const purpose = { kind: 'document', id: 'bench' } as const
  const vectors: Float32Array[] = []
  for (let from = 0; from < texts.length; from += textsAtOnce) {
    const some = texts.slice(from, from + textsAtOnce)
    vectors.push(
      ...(await embedChunks(embeddings as Embeddings, model.facts, some, { tenant_id: 'bench', purpose })),
    )
  }
  return vectors
}

async function qualityRows(
  how: string,
  store: Store,
  { embedder, asked }: { embedder: Embedder; asked: Float32Array[] },
): Promise<Row[]> {
  const rows: Row[] = []
  let best = 0
  for (const mode of ['text', 'vector', 'hybrid'] as const) {
    const { ndcg10, recall10 } = await cranfieldQuality(store, 'c', (text, place) => ({
      mode,
      text,
      vector: asked[place] as Float32Array,
      embedder,
    }))
    const what = `Cranfield, abstracts ${how}, ${mode}`
    const note = mode === 'hybrid' ? { note: `≥ 0.42, ≥ ${best.toFixed(3)}` } : {}
    rows.push(
      { what: `${what}: nDCG@10`, unit: '', figures: [ndcg10], ...note },
      { what: `${what}: recall@10`, unit: '', figures: [recall10] },
    )
    best = Math.max(best, ndcg10)
  }
  return rows
}

async function recallRows(
  how: string,
  store: Store,
  { embedder, asked, documents }: { embedder: Embedder; asked: Float32Array[]; documents: AbstractChunks[] },
): Promise<Row[]> {
  const placed = documents.flatMap(({ id, chunks }) =>
    chunks.map(({ vector }, position) => ({
      document: String(id),
      position,
      vector: vector as Float32Array,
    })),
  )
  const filters: [string, Filter | undefined, (document: string) => boolean][] = [
    ['all', undefined, () => true],
    ['a tenth by a filter', { tenth: 3 }, (document) => Number(document) % 10 === 3],
  ]
  const rows: Row[] = []
  for (const [name, filter, leaves] of filters)
    rows.push({
      what: `Cranfield, abstracts ${how}, ${name}: recall@10 of the scan against exact search`,
      unit: '',
      figures: [
        await recallOfScan(store, { collection: 'c', embedder, placed }, asked, {
          leaves,
          ...(filter && { filter }),
        }),
      ],
      note: '≥ 0.98',
    })
  return rows
}

if (import.meta.main) {
  console.log(`${new Date().toISOString().slice(0, 10)}, ${machine()}\n\n${table(await retrievalQuality())}`)
}

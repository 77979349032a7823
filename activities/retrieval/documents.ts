import { ApplicationFailure, cancellationSignal } from '@temporalio/activity'
import type { DocumentExtractor, TokenizerModule } from '../../drivers/documents.ts'
import { BlobMissing } from '../../lib/blob-store.ts'
import { readBlobs } from '../../models/blobs.ts'
import {
  addLacking,
  atStage,
  documentForStore,
  extractedOf,
  forgetOthers,
  keepExtracted,
  keepVectors,
  lackingOf,
  type Work,
} from '../../models/retrieval/document-work.ts'
import { RagCollection, type RagCollectionDocument } from '../../models/retrieval/collections.ts'
import type { DocumentStage } from '../../models/retrieval/documents.ts'
import { type CollectionEmbedder, pinned } from '../../models/retrieval/embedders.ts'
import { embedChunks } from '../../models/retrieval/embedding.ts'
import type { Embeddings } from '../../models/retrieval/embeddings.ts'
import { storeWithDisk } from '../../models/retrieval/store-condition.ts'
import { StoreError } from '../../models/retrieval/store-rules.ts'
import { RagStore } from '../../models/retrieval/stores.ts'
import { hashesOfUpload } from '../../models/retrieval/uploads.ts'
import { patiently } from './patience.ts'

/** How documents are cut to an embedder's size. */
export interface Cut {
  tokenizer: TokenizerModule
  tokensPerChunk: number
}

/** What a document is in the index. */
export interface Indexed {
  indexed_version: number
  /** The disk of the store. */
  indexed_in: string | null
  /** ISO 8601. */
  indexed_at: string
  chunks: number
  tokens: number
  pages: number | null
}

/** A killed worker loses the vectors of one batch: some 10 s of one core. */
export const batch = 128
/** Then documents of others take their turn. */
export const turnMs = 20_000

// A store takes 64 MiB as one document. A chunk has its vector in base64, and of text, place and hash mostly less than this.
const mostOfStore = 60 * 1024 ** 2
const usualChunkBytes = 1_500
const mostChunks = ({ dimensions }: Pick<CollectionEmbedder, 'dimensions'>): number =>
  Math.floor(mostOfStore / ((dimensions * Float32Array.BYTES_PER_ELEMENT * 4) / 3 + usualChunkBytes))

/**
 * The steps of an upload's way into the index. They have a queue of their own, where tenants take turns. Each looks at what
 * is recorded, and does the rest.
 */
export const makeRagDocumentActivities = ({
  extractor,
  embeddings,
  cutFor,
}: {
  extractor: DocumentExtractor
  embeddings: Embeddings
  /** Null: this worker does not have the embedder. */
  cutFor: (embedder: CollectionEmbedder) => Cut | null
}) => ({
  /** Throws `content_damaged` if what was sent in parts is not what was announced. */
  checkRagUpload: (id: string, operationId: string): Promise<void> =>
    patiently(async () => {
      const hashes = await hashesOfUpload(id, operationId)
      if (hashes && hashes.is !== hashes.announced)
        throw ApplicationFailure.nonRetryable(
          `The content has the SHA-256 ${hashes.is}, not the announced one: upload it again`,
          'content_damaged',
        )
    }),

  /** Reads the document into chunks. Throws DocumentRefused and ExtractionExceeded. */
  extractRagDocument: (id: string, operationId: string): Promise<void> =>
    patiently(async () => {
      const work = await workAt(id, operationId, 'extracting')
      await read(extractor, work, cutFor(work.collection.embedder))
    }),

  /** Embeds chunks that the store lacks, for one turn. Says how many of how many have a vector. */
  embedRagDocument: (id: string, operationId: string): Promise<{ embedded: number; all: number }> =>
    patiently(async () => {
      const until = Date.now() + turnMs
      const work = await workAt(id, operationId, 'embedding')
      const { document } = work
      // Another embedder has come since it was read.
      await read(extractor, work, cutFor(work.collection.embedder))
      const lacking = (await lackingOf(work)) ?? (await addLacking(work, await lackedBy(work)))
      const texts = await textsOf(work, lacking.length - document.chunks_embedded)
      while (document.chunks_embedded < lacking.length && Date.now() < until) {
        const next = lacking.slice(document.chunks_embedded, document.chunks_embedded + batch)
        await keepVectors(
          work,
          await vectorsOf(
            embeddings,
            work,
            next.map((hash) => texts.get(hash) ?? ''),
          ),
        )
      }
      return { embedded: document.chunks_embedded, all: lacking.length }
    }),

  /**
   * Puts the document in the place of its former version. Null: there is more to embed, since the store lacks further vectors, or
   * the collection has another embedder.
   */
  indexRagDocument: (id: string, operationId: string): Promise<Indexed | null> =>
    patiently(async () => {
      const work = await workAt(id, operationId, 'indexing')
      if (!work.document.extracted) return null
      const { chunks, tokens, pages } = await extractedOf(work)
      const { lacked, disk_id } = await putInto(work)
      if (lacked.length) {
        await addLacking(work, lacked)
        return null
      }
      const indexed_at = new Date().toISOString()
      const { version: indexed_version } = work.document
      return { indexed_version, indexed_in: disk_id, indexed_at, chunks: chunks.length, tokens, pages }
    }),
})

export type RagDocumentActivities = ReturnType<typeof makeRagDocumentActivities>

/** Throws `superseded`. */
async function workAt(id: string, operationId: string, stage: DocumentStage): Promise<Work> {
  const work = await atStage(id, operationId, stage)
  if (work) {
    await forgetOthers(work)
    return work
  }
  throw ApplicationFailure.nonRetryable('Another operation has taken over the document', 'superseded')
}

/** Reads the document, unless that is done. */
async function read(extractor: DocumentExtractor, work: Work, cut: Cut | null): Promise<void> {
  const { document, collection } = work
  if (document.extracted) return
  if (!cut)
    throw ApplicationFailure.nonRetryable(
      `The platform no longer has the embedder ${collection.embedder.id}`,
      'embedder_missing',
    )
  const extracted = await extractor.extract({
    type: document.type,
    content: contentOf(work),
    ...cut,
    bounds: { chunks: mostChunks(collection.embedder) },
    signal: cancellationSignal(),
    party: document.tenant_id,
  })
  await keepExtracted(work, extracted)
}

/** Throws BlobMissing. */
function contentOf({ document: { _id, content } }: Work): AsyncIterable<Buffer> {
  if (content.length === 0) throw new BlobMissing(_id, null)
  return readBlobs(content)
}

const vectorsOf = (
  embeddings: Embeddings,
  { document: { _id: id, tenant_id }, collection }: Work,
  texts: string[],
): Promise<Float32Array[]> =>
  embedChunks(embeddings, collection.embedder, texts, {
    tenant_id,
    purpose: { kind: 'document', id },
    signal: cancellationSignal(),
  })

/** The hashes whose vectors the store lacks. Of a document that it has never had, these are all. */
async function lackedBy(work: Work): Promise<string[]> {
  if (work.document.version > 1) return (await putInto(work)).lacked
  const { chunks } = await extractedOf(work)
  return [...new Set(chunks.map(({ hash }) => hash))]
}

/** Gives the store the document with the vectors that there are. Nothing is lacked: the store has taken it. */
async function putInto(work: Work): Promise<{ lacked: string[]; disk_id: string | null }> {
  const { document, collection } = work
  const given = await documentForStore(work)
  const { store, disk_id } = await storeWithDisk(document.tenant_id)
  try {
    const replaced = await store.replaceDocument(collection.name, pinned(collection.embedder), given)
    return { lacked: replaced.outcome === 'vectors_missing' ? replaced.hashes : [], disk_id }
  } catch (error) {
    const isOther = error instanceof StoreError && error.code === 'embedder_mismatch'
    if (!isOther || !(await changesEmbedder(collection))) throw error
    throw new Error('The collection has just got another embedder: begin again with it', { cause: error })
  }
}

/** Whether the collection gets another embedder than it had, or has got it. A restored store may have a former one. */
async function changesEmbedder({ _id, tenant_id, embedder }: RagCollectionDocument): Promise<boolean> {
  if (await RagStore.exists({ tenant_id, status: 'restoring' })) return true
  const now = await RagCollection.findOne({ _id, tenant_id }).lean()
  return Boolean(now?.next_embedder) || (now !== null && now.embedder.hash !== embedder.hash)
}

/** The texts of the chunks by hash; none if none is needed. */
async function textsOf(work: Work, needed: number): Promise<Map<string, string>> {
  if (needed === 0) return new Map()
  const { chunks } = await extractedOf(work)
  return new Map(chunks.map(({ hash, text }) => [hash, text]))
}

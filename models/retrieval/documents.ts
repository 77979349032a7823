import mongoose, { Schema } from 'mongoose'
import { type DocumentType, documentTypes } from './document-types.ts'
import type { Metadata } from '../../images/rag/store.ts'
import { NotFound } from '../../lib/problem.ts'
import { type BlobName, dropBlobs } from '../blobs.ts'
import { defineResource, type ResourceDocument, resourceSchema } from '../resources.ts'
import { type StateOf, states } from '../states.ts'

export const ragDocumentStates = states(
  {
    creating: {},
    ready: { update: 'updating', reindex: 'updating', delete: 'deleting' },
    error: { update: 'updating', retry: 'updating', delete: 'deleting' },
  },
  { supersede: ['delete'], final: ['delete'] },
)

/** Where the last upload is on its way into the index. */
export const documentStages = [
  'uploading',
  'queued',
  'extracting',
  'embedding',
  'indexing',
  'ready',
  'failed',
] as const
export type DocumentStage = (typeof documentStages)[number]

/** A document of a collection. Its name is unique there. */
export interface RagDocumentDocument extends ResourceDocument<StateOf<typeof ragDocumentStates>> {
  collection_id: string
  type: DocumentType
  /** Values of the fields that the collection's schema has. */
  metadata: Metadata
  /** What was uploaded last, in parts. None: nothing has come whole yet, or the document is being forgotten. */
  content: BlobName[]
  size_bytes: number
  /** SHA-256 of the content, in hex. */
  content_hash: string
  /** Grows with each upload and retry: the store keeps the highest. 0: nothing has come whole yet. */
  version: number
  /** The version that a search finds. Null: none yet. */
  indexed_version: number | null
  /** The disk of the store that has it, and since when (lineage.ts). */
  indexed_in: string | null
  indexed_at: Date | null
  stage: DocumentStage
  /** The stage at which the last upload failed or was cancelled. A retry begins there. */
  failed_stage: DocumentStage | null
  /** The chunks of the last upload, from their extraction until they are in the index. */
  extracted: BlobName | null
  /** The hash of the embedder for which they were made, and whose vectors `embedded` has. */
  made_for: string | null
  /** The hashes of the chunks whose vectors the store lacks. Null: it has not been asked. */
  lacking: BlobName | null
  /** The vectors of some of these each, in their order. */
  embedded: BlobName[]
  chunks_to_embed: number | null
  chunks_embedded: number
  chunks: number | null
  tokens: number | null
  /** Of a PDF. */
  pages: number | null
  /** The next content, which is sent in parts (uploads.ts). */
  upload: PendingUpload | null
  /** The last one that was, for a client that has not heard how it ended. */
  ended_upload: (Pick<PendingUpload, 'token_hash' | 'size_bytes'> & { whole: boolean }) | null
}

/** A content that is on its way. The rest of the record changes when it is whole and as announced. */
export interface PendingUpload
  extends Pick<RagDocumentDocument, 'type' | 'metadata' | 'size_bytes' | 'content_hash'> {
  token_hash: string
  expires_at: Date
  parts: BlobName[]
  /** Bytes of the parts. */
  received: number
  /** What the record goes back to if the content does not come. */
  before: Pick<RagDocumentDocument, 'status' | 'stage' | 'failed_stage'>
}

const { Mixed } = Schema.Types
const number = { type: Number, default: null }
const schema = resourceSchema<RagDocumentDocument>(
  {
    collection_id: { type: String, required: true },
    type: { type: String, required: true, enum: documentTypes },
    metadata: { type: Mixed, required: true },
    content: { type: [Mixed], default: [] },
    size_bytes: { type: Number, required: true },
    content_hash: { type: String, required: true },
    version: { type: Number, required: true },
    indexed_version: number,
    indexed_in: { type: String, default: null },
    indexed_at: { type: Date, default: null },
    stage: { type: String, required: true, enum: documentStages },
    failed_stage: { type: String, default: null, enum: [...documentStages, null] },
    extracted: { type: Mixed, default: null },
    made_for: { type: String, default: null },
    lacking: { type: Mixed, default: null },
    embedded: { type: [Mixed], default: [] },
    chunks_to_embed: number,
    chunks_embedded: { type: Number, default: 0 },
    chunks: number,
    tokens: number,
    pages: number,
    upload: { type: Mixed, default: null },
    ended_upload: { type: Mixed, default: null },
  },
  ragDocumentStates,
  'rag_documents',
  { within: 'collection_id' },
)
schema.index({ tenant_id: 1, collection_id: 1, created_at: -1, _id: -1 })
// Those with work under way: the deletion of their collection ends it.
schema.index(
  { tenant_id: 1, operation_id: 1 },
  { partialFilterExpression: { operation_id: { $type: 'string' } } },
)

export const RagDocument = mongoose.model<RagDocumentDocument>('RagDocument', schema)
export const ragDocumentResource = defineResource('rag_document', RagDocument, ragDocumentStates, {
  title: 'document',
  comesToRest: settle,
})

/** The fields of a document whose upload has not begun, and of one whose upload is in the index. */
export const noWork = {
  extracted: null,
  made_for: null,
  lacking: null,
  embedded: [],
  chunks_to_embed: null,
  chunks_embedded: 0,
} satisfies Partial<RagDocumentDocument>

/** The fields of a document that searches do not find. */
export const notIndexed = { indexed_version: null, indexed_in: null, indexed_at: null } as const

/** The blobs of work under way. */
export const blobsOfWork = ({
  extracted,
  lacking,
  embedded,
}: Pick<RagDocumentDocument, 'extracted' | 'lacking' | 'embedded'>): BlobName[] =>
  [extracted, lacking, ...embedded].filter((blob) => blob !== null)

/** All blobs of a document. */
export const blobsOf = (document: RagDocumentDocument): BlobName[] => [
  ...document.content,
  ...blobsOfWork(document),
  ...(document.upload?.parts ?? []),
]

/**
 * Ends an upload that has not come whole: the record is then as before it, but for its status, which is returned. In a
 * transaction.
 */
export async function endUpload({
  _id,
  tenant_id,
  upload,
}: RagDocumentDocument): Promise<RagDocumentDocument['status'] | null> {
  if (!upload) return null
  const { token_hash, size_bytes, parts, before } = upload
  await dropBlobs(parts)
  const { status, ...fields } = before
  const ended_upload = { token_hash, size_bytes, whole: false }
  await RagDocument.updateOne({ _id, tenant_id }, { $set: { ...fields, upload: null, ended_upload } })
  return status
}

/** Says at which stage the work has stopped, or drops its blobs if it is done. */
async function settle({ _id, tenant_id }: { _id: string; tenant_id: string }): Promise<void> {
  const document = await RagDocument.findOne({ _id, tenant_id }).lean()
  if (!document) return
  const { status, stage } = document
  const before = await endUpload(document)
  if (before !== null) await RagDocument.updateOne({ _id, tenant_id }, { $set: { status: before } })
  else if (status === 'ready') {
    await dropBlobs(blobsOfWork(document))
    await RagDocument.updateOne({ _id, tenant_id }, { $set: noWork })
  } else if (stage !== 'ready' && stage !== 'failed')
    await RagDocument.updateOne({ _id, tenant_id }, { $set: { stage: 'failed', failed_stage: stage } })
}

/** A document of the collection. Throws NotFound. */
export async function documentIn(
  { _id: collection_id, tenant_id }: { _id: string; tenant_id: string },
  _id: string,
): Promise<RagDocumentDocument> {
  const document = await RagDocument.findOne({ _id, tenant_id, collection_id }).lean()
  if (!document) throw new NotFound(ragDocumentResource.title)
  return document
}

/** What is in each of these collections, by the records. */
export async function sumsOf(tenant_id: string, collection_ids: string[]) {
  const sums = await RagDocument.aggregate<{
    _id: string
    documents: number
    chunks: number
    bytes: number
  }>([
    { $match: { tenant_id, collection_id: { $in: collection_ids } } },
    {
      $group: {
        _id: '$collection_id',
        documents: { $sum: 1 },
        chunks: { $sum: '$chunks' },
        bytes: { $sum: '$size_bytes' },
      },
    },
  ])
  return new Map(sums.map(({ _id, ...its }) => [_id, its]))
}

import { createHash } from 'node:crypto'
import { isDeepStrictEqual } from 'node:util'
import { InvalidInput, OperationInProgress, Problem, StateConflict } from '../../lib/problem.ts'
import { accepts, begin, type By, create } from '../acceptance.ts'
import { type BlobName, dropBlobs, dropUnkept, keepBlob, storeBlob } from '../blobs.ts'
import { transaction } from '../database.ts'
import { needQuota } from '../identity/tenants.ts'
import type { Accepted } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { mine } from '../resources.ts'
import {
  collectionNamed,
  needReady,
  type RagCollectionDocument,
  ragCollectionResource,
} from './collections.ts'
import { faultOf } from './document-types.ts'
import {
  blobsOfWork,
  documentIn,
  endUpload,
  notIndexed,
  noWork,
  RagDocument,
  type RagDocumentDocument,
  ragDocumentResource,
} from './documents.ts'
import { isLost } from './lineage.ts'
import { checked } from './problems.ts'
import { checkMetadata } from './store-rules.ts'
import { RagStore, ragStoreResource } from './stores.ts'

/** What is uploaded, in one request or in parts. */
export interface Upload extends Pick<RagDocumentDocument, 'name' | 'type' | 'metadata'> {
  size_bytes: number
  content_hash: string
}

export interface WholeUpload extends Omit<Upload, 'size_bytes' | 'content_hash'> {
  content: Buffer
  /** The field of the request that has it. */
  given_as: 'content' | 'content_base64'
}

type Document = RagDocumentDocument
export type DocumentAccepted = Accepted<Document> | { document: Document; operation: null }

/**
 * Accepts a document, a new content or metadata of one, or the retry of the same. Returns the document alone if it has
 * all of it already, or work on the same is under way. Throws NotFound (the collection), StateConflict, InvalidInput,
 * QuotaExceeded, OperationInProgress, StoreFull, and as `create`.
 */
export async function acceptUpload(
  by: By,
  collectionName: string,
  { content, given_as, ...named }: WholeUpload,
): Promise<DocumentAccepted> {
  const content_hash = createHash('sha256').update(content).digest('hex')
  const upload: Upload = { ...named, size_bytes: content.length, content_hash }
  return unlessThere(by, collectionName, upload, async (collection) => {
    const fault = faultOf(upload.type, content)
    if (fault !== null) throw new InvalidInput(422, [{ pointer: `/${given_as}`, message: fault }])
    const blob = await storeBlob(content)
    try {
      return await transaction(async () => take(by, collection, upload, blob), by.tenant_id)
    } catch (error) {
      await dropUnkept(blob)
      throw error
    }
  })
}

/**
 * Accepts an upload by `accept` if it brings something new. Takes up a failed one of the same; returns the document alone
 * if it has all of it already.
 */
export async function unlessThere<T>(
  by: By,
  collectionName: string,
  upload: Upload,
  accept: (collection: RagCollectionDocument) => Promise<T>,
): Promise<T | DocumentAccepted> {
  const collection = await collectionNamed(by, collectionName)
  needReady(collection, `upload to the ${ragCollectionResource.title}`)
  checked(() => checkMetadata(upload.metadata, collection.metadata_schema))
  const there = await sameIn(collection, upload)
  if (there?.failed_stage) return retryOf(by, there)
  if (there) return { document: there, operation: null }
  return accept(collection)
}

/**
 * The collection's document of this name, if it was uploaded last with the same content, type and metadata, and is not to
 * be deleted or to get another content.
 */
async function sameIn(
  { _id: collection_id, tenant_id }: RagCollectionDocument,
  { name, type, metadata, content_hash }: Upload,
): Promise<Document | null> {
  const there = await RagDocument.findOne({ tenant_id, collection_id, name, type, content_hash }).lean()
  if (!there || there.upload || there.content.length === 0) return null
  const isLeaving = there.status === 'deleting' || (there.status === 'error' && there.failed_stage === null)
  return !isLeaving && isDeepStrictEqual(there.metadata, metadata) ? there : null
}

/** In a transaction. */
async function take(
  by: By,
  { _id: collection_id, tenant_id }: RagCollectionDocument,
  { name, type, metadata, size_bytes, content_hash }: Upload,
  blob: BlobName,
): Promise<Accepted<Document>> {
  await lock(tenant_id, collection_id)
  const there = await RagDocument.findOne({ tenant_id, collection_id, name }).lean()
  await needRoom(tenant_id, size_bytes - (there?.size_bytes ?? 0), there ? 0 : 1)
  await keepBlob(blob)
  const fields = { type, metadata, size_bytes, content_hash, content: [blob] }
  if (!there)
    return create(by, ragDocumentResource, {
      fields: { name, tags: {}, collection_id, ...fresh, ...fields, version: 1, stage: 'queued' },
    })
  return renewed(by, there, 'update', {
    set: { ...fields, ...noWork, stage: 'queued' },
    dropped: [...there.content, ...blobsOfWork(there)],
  })
}

/** The fields of a document of which there is nothing yet. */
export const fresh = {
  content: [],
  version: 0,
  ...notIndexed,
  failed_stage: null,
  ...noWork,
  chunks: null,
  tokens: null,
  pages: null,
  upload: null,
  ended_upload: null,
} satisfies Partial<Document>

/**
 * Accepts a verb that puts the document into the index. What is set stays if that fails: the former version is found until
 * then, and a retry goes on with the new one.
 */
async function renewed(
  by: By,
  there: Document,
  verb: 'update' | 'retry' | 'reindex',
  { set, dropped }: { set: Partial<Document>; dropped: BlobName[] },
): Promise<Accepted<Document>> {
  const version = there.version + 1
  const all = { ...set, version, failed_stage: null }
  const { document, operation } = await begin(by, ragDocumentResource, there._id, verb, {
    reserve: async ({ tenant_id, operation_id }) => {
      await dropBlobs(dropped)
      await RagDocument.updateOne({ _id: there._id, tenant_id, operation_id }, { $set: all })
    },
  })
  return { document: { ...document, ...all }, operation }
}

/** Until the transaction ends, neither the collection nor its store is deleted. Throws StateConflict. */
export async function lock(tenant_id: string, collection_id: string): Promise<RagCollectionDocument> {
  const collection = await lockParent(ragCollectionResource, tenant_id, collection_id)
  needReady(collection, `change documents of the ${ragCollectionResource.title}`)
  await lockParent(ragStoreResource, tenant_id, collection.store_id)
  return collection
}

/** How many documents a tenant has, and their size. What is on its way counts beside what it replaces: both are stored. */
export async function documentSumsOf(tenant_id: string): Promise<{ documents: number; bytes: number }> {
  const all = { $add: ['$size_bytes', { $ifNull: ['$upload.size_bytes', 0] }] }
  const [sums] = await RagDocument.aggregate<{ documents: number; bytes: number }>([
    { $match: { tenant_id } },
    { $group: { _id: null, documents: { $sum: 1 }, bytes: { $sum: all } } },
  ])
  return sums ?? { documents: 0, bytes: 0 }
}

/** Throws QuotaExceeded. */
export async function needRoom(tenant_id: string, bytes: number, documents: number): Promise<void> {
  const sums = await documentSumsOf(tenant_id)
  if (documents > 0) await needQuota(tenant_id, 'max_rag_documents', sums.documents, documents)
  if (bytes > 0) await needQuota(tenant_id, 'max_rag_gib', gibOf(sums.bytes), gibOf(bytes))
}

/** With three decimals: somebody reads it. */
const gibOf = (bytes: number): number => Math.round((bytes / 1024 ** 3) * 1000) / 1000

/** Takes up the work on the last upload where it stopped. Throws NotFound, StateConflict, OperationInProgress. */
export const acceptRetry = async (by: By, name: string, id: string): Promise<Accepted<Document>> =>
  retryOf(by, await documentIn(await collectionNamed(by, name), id))

const retryOf = (by: By, { _id, collection_id }: Document): Promise<Accepted<Document>> =>
  transaction(async () => {
    await lock(by.tenant_id, collection_id)
    const there = await mine(ragDocumentResource, by, _id)
    if (there.operation_id !== null) throw new OperationInProgress(there.operation_id)
    const { failed_stage } = there
    // Its deletion has failed: that is to be repeated.
    if (failed_stage === null) throw new StateConflict('retry', there.status)
    if (failed_stage === 'uploading') throw nothingCame()
    return renewed(by, there, 'retry', { set: { stage: failed_stage }, dropped: [] })
  }, by.tenant_id)

/**
 * Puts a document into the index again that a restored store does not have in this version. Null: it is not lost, or work is
 * under way on it. Throws StateConflict (the collection).
 */
export const acceptReindex = (
  tenant_id: string,
  { _id, collection_id }: Pick<Document, '_id' | 'collection_id'>,
): Promise<Accepted<Document> | null> =>
  transaction(async () => {
    const { store_id } = await lock(tenant_id, collection_id)
    const there = await RagDocument.findOne({ _id, tenant_id, status: 'ready', operation_id: null }).lean()
    const store = await RagStore.findOne({ _id: store_id, tenant_id }).lean()
    if (!there || !store || !isLost(store, there)) return null
    return renewed({ tenant_id, id: null }, there, 'reindex', {
      set: { ...notIndexed, ...noWork, stage: 'queued' },
      dropped: blobsOfWork(there),
    })
  }, tenant_id)

const nothingCame = (): Problem =>
  new Problem(
    409,
    'content_missing',
    'There is nothing to retry',
    'The content is incomplete: upload it again',
  )

/** Throws NotFound, and as `begin`. */
export const acceptDocumentDeletion = async (
  by: By,
  name: string,
  id: string,
  options: DeletionOptions,
): Promise<Accepted<Document>> =>
  deletionOf(by, await documentIn(await collectionNamed(by, name), id), options)

/** `purge`: with the snapshots that may have it. */
interface DeletionOptions {
  purge?: boolean
}

const deletionOf = (
  by: By,
  { _id, collection_id }: Document,
  { purge = false }: DeletionOptions = {},
): Promise<Accepted<Document>> =>
  begin(by, ragDocumentResource, _id, 'delete', {
    input: purge ? { purge } : {},
    reserve: async (document) => {
      await lockParent(ragCollectionResource, document.tenant_id, collection_id)
      await endUpload(document)
    },
  })

accepts(ragDocumentResource, {
  verbs: { delete: async (by, id) => deletionOf(by, await mine(ragDocumentResource, by, id)) },
})

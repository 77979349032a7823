import { createHash } from 'node:crypto'
import { type By, begin, create } from '../acceptance.ts'
import { dropBlobs, dropUnkept, keepBlob, readBlobs, storeBlob } from '../blobs.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { hashToken, newToken } from '../secrets.ts'
import { everyTenant } from '../tenant-scope.ts'
import type { RagCollectionDocument } from './collections.ts'
import {
  type DocumentAccepted,
  fresh,
  lock,
  needRoom,
  type Upload,
  unlessThere,
} from './document-acceptance.ts'
import {
  blobsOfWork,
  noWork,
  type PendingUpload,
  RagDocument,
  type RagDocumentDocument,
  ragDocumentResource,
} from './documents.ts'

// Contents that are sent in parts. They wait in the record beside what it has, so that one that does not come whole leaves
// it as it is. The operation of their document waits for them: its end, whatever it is, leaves no parts.

const tokenKind = 'kup'
const keptMs = 24 * 3_600_000

/** Bytes of one document. */
export const uploadAtMost = 256 * 1024 ** 2
/** Bytes of each part but the last of a request. */
export const partBytes = 8 * 1024 ** 2
/** Smaller ones end the document: the record has a place for each. */
export const partAtLeast = 256 * 1024

type Document = RagDocumentDocument

/**
 * Accepts a document that is to be sent in parts, with the token for it; without one if there is nothing to send. Throws as
 * `acceptUpload`.
 */
export async function acceptAnnounced(
  by: By,
  collectionName: string,
  upload: Upload,
): Promise<DocumentAccepted & { token?: string }> {
  const token = newToken(tokenKind)
  return unlessThere(by, collectionName, upload, async (collection) => ({
    ...(await transaction(() => announce(by, collection, upload, hashToken(token)), by.tenant_id)),
    token,
  }))
}

/** In a transaction. */
async function announce(
  by: By,
  { _id: collection_id, tenant_id }: RagCollectionDocument,
  { name, ...announced }: Upload,
  token_hash: string,
): Promise<Accepted<Document>> {
  await lock(tenant_id, collection_id)
  const there = await RagDocument.findOne({ tenant_id, collection_id, name }).lean()
  await needRoom(tenant_id, announced.size_bytes, there ? 0 : 1)
  const upload = (before: PendingUpload['before']): PendingUpload => ({
    ...announced,
    token_hash,
    expires_at: new Date(Date.now() + keptMs),
    parts: [],
    received: 0,
    before,
  })
  const input = { upload: true }
  if (!there) {
    const { type, metadata, content_hash } = announced
    const nothing = { ...fresh, type, metadata, content_hash, size_bytes: 0, stage: 'uploading' } as const
    const pending = upload({ status: 'error', stage: 'failed', failed_stage: 'uploading' })
    return create(by, ragDocumentResource, {
      input,
      fields: { name, tags: {}, collection_id, ...nothing, upload: pending },
    })
  }
  const { _id, status, stage, failed_stage } = there
  const set = {
    upload: upload({ status, stage, failed_stage }),
    stage: 'uploading',
    failed_stage: null,
  } as const
  const { document, operation } = await begin(by, ragDocumentResource, _id, 'update', {
    input,
    // Not `set` of the operation: that would come back if the work fails after the content has come.
    reserve: async ({ operation_id }) => {
      await RagDocument.updateOne({ _id, tenant_id, operation_id }, { $set: set })
    },
  })
  return { document: { ...document, ...set }, operation }
}

/** The document whose content is or was sent with this token. Null: there is none. */
export async function findUpload(_id: string, token: string): Promise<Document | null> {
  const token_hash = hashToken(token)
  const found = await RagDocument.findOne({
    _id,
    $or: [{ 'upload.token_hash': token_hash }, { 'ended_upload.token_hash': token_hash }],
  })
    .setOptions(everyTenant)
    .lean()
  if (!found) return null
  return found.upload?.token_hash === token_hash ? found : { ...found, upload: null }
}

/** Stores bytes as the next part, which begins at this offset. False: the upload is at another one, or over. */
export async function addPart(
  { _id, tenant_id, operation_id }: Pick<Document, '_id' | 'tenant_id' | 'operation_id'>,
  offset: number,
  bytes: Uint8Array,
): Promise<boolean> {
  const blob = await storeBlob(bytes)
  const isNext = { _id, tenant_id, operation_id, 'upload.received': offset }
  const isAdded = await transaction(async () => {
    const { matchedCount } = await RagDocument.updateOne(isNext, {
      $push: { 'upload.parts': blob },
      $set: { 'upload.received': offset + bytes.length },
    })
    if (matchedCount) await keepBlob(blob)
    return matchedCount > 0
  }).catch(async (error: unknown) => {
    await dropUnkept(blob)
    throw error
  })
  if (!isAdded) await dropUnkept(blob)
  return isAdded
}

/** How far an upload is. `taken`: it has become the document's content. `gone`: it is no longer waited for. */
export async function stateOfUpload(
  id: string,
  operation_id: string,
): Promise<'taken' | 'whole' | 'open' | 'gone'> {
  const document = await RagDocument.findOne({ _id: id, operation_id }).setOptions(everyTenant).lean()
  if (!document?.upload) return 'taken'
  const { received, size_bytes, expires_at } = document.upload
  if (received === size_bytes) return 'whole'
  return expires_at > new Date() ? 'open' : 'gone'
}

/** The SHA-256 of an upload that is whole, and the one that was announced. Null: it has been taken. */
export async function hashesOfUpload(
  id: string,
  operation_id: string,
): Promise<{ is: string; announced: string } | null> {
  const document = await RagDocument.findOne({ _id: id, operation_id }).setOptions(everyTenant).lean()
  if (!document?.upload) return null
  const hash = createHash('sha256')
  for await (const part of readBlobs(document.upload.parts)) hash.update(part)
  return { is: hash.digest('hex'), announced: document.upload.content_hash }
}

/** Makes an upload that is whole the content of its document. Idempotent. */
export const takeUpload = (id: string, operation_id: string): Promise<void> =>
  transaction(async () => {
    const document = await RagDocument.findOne({ _id: id, operation_id }).setOptions(everyTenant).lean()
    if (!document?.upload) return
    const { tenant_id, version } = document
    const { type, metadata, size_bytes, content_hash, parts: content, token_hash } = document.upload
    await dropBlobs([...document.content, ...blobsOfWork(document)])
    const taken = {
      type,
      metadata,
      size_bytes,
      content_hash,
      content,
      ...noWork,
      version: version + 1,
      stage: 'queued',
      upload: null,
      ended_upload: { token_hash, size_bytes, whole: true },
    } as const
    await RagDocument.updateOne({ _id: id, tenant_id }, { $set: taken })
  })

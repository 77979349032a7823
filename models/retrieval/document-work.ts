import type { UpdateQuery } from 'mongoose'
import type { ExtractedDocument } from '../../drivers/documents.ts'
import type { Document as StoredDocument } from '../../images/rag/store.ts'
import { type BlobName, dropBlobs, dropUnkept, keepBlob, readBlob, storeBlob } from '../blobs.ts'
import { transaction } from '../database.ts'
import { closeLedger } from '../llm/ledgers.ts'
import { everyTenant } from '../tenant-scope.ts'
import { RagCollection, type RagCollectionDocument } from './collections.ts'
import {
  blobsOf,
  blobsOfWork,
  type DocumentStage,
  noWork,
  RagDocument,
  type RagDocumentDocument,
} from './documents.ts'
import { kept } from './places.ts'

// The work on an upload, as it is recorded: chunks and vectors are blobs, so that a killed worker goes on after the last of
// them. A record changes only while it is as it was read, and its operation holds it: a late writer changes nothing.

/** A document, its collection, and the operation that works on it. */
export interface Work {
  document: RagDocumentDocument
  collection: RagCollectionDocument
}

/** Begins a stage, or goes on with it. Null: the operation no longer holds the document. */
export async function atStage(id: string, operation_id: string, stage: DocumentStage): Promise<Work | null> {
  const document = await RagDocument.findOneAndUpdate(
    { _id: id, operation_id },
    { $set: { stage } },
    { returnDocument: 'after' },
  )
    .setOptions(everyTenant)
    .lean()
  if (!document) return null
  const { tenant_id, collection_id } = document
  const collection = await RagCollection.findOne({ _id: collection_id, tenant_id }).lean()
  return collection && { document, collection }
}

/** Keeps the chunks of the upload. The document is then as it is recorded. */
export const keepExtracted = ({ document, collection }: Work, extracted: ExtractedDocument): Promise<void> =>
  keeping(json(extracted), async (blob) => {
    const made = { extracted: blob, made_for: collection.embedder.hash }
    await record(document, { extracted: null }, made, { keep: blob })
    Object.assign(document, made)
  })

/** Forgets chunks and vectors that were made for another embedder than the collection has now. */
export async function forgetOthers({ document, collection }: Work): Promise<void> {
  const { extracted, made_for } = document
  if (!extracted || made_for === collection.embedder.hash) return
  await record(document, { extracted, made_for }, noWork, { drop: blobsOfWork(document) })
  Object.assign(document, noWork)
}

/** The chunks of the upload. */
export const extractedOf = ({ document }: Work): Promise<ExtractedDocument> =>
  parsed(needed(document.extracted))

/** The hashes of chunks whose vectors the store lacks, those with a vector already first. Null: it has not been asked. */
export const lackingOf = async ({ document }: Work): Promise<string[] | null> =>
  document.lacking && parsed<string[]>(document.lacking)

/** Adds hashes to those that the store lacks. */
export async function addLacking(work: Work, more: string[]): Promise<string[]> {
  const { document } = work
  const lacking = [...((await lackingOf(work)) ?? []), ...more]
  await keeping(json(lacking), (blob) =>
    record(
      document,
      { lacking: document.lacking },
      { lacking: blob, chunks_to_embed: lacking.length },
      { keep: blob, drop: document.lacking ? [document.lacking] : [] },
    ),
  )
  return lacking
}

/** Keeps the vectors of the next hashes that the store lacks. The document is then as it is recorded. */
export async function keepVectors({ document }: Work, vectors: Float32Array[]): Promise<void> {
  const { chunks_embedded } = document
  const all = chunks_embedded + vectors.length
  await keeping(Buffer.concat(vectors.map(bytesOf)), async (blob) => {
    const changes = { $push: { embedded: blob }, $set: { chunks_embedded: all } }
    await record(document, { chunks_embedded }, changes, { keep: blob })
    // A list of its own: that of `noWork` is everybody's.
    Object.assign(document, { embedded: [...document.embedded, blob], chunks_embedded: all })
  })
}

/** The document for the store, with the vectors that were made for it. */
export async function documentForStore(work: Work): Promise<StoredDocument> {
  const { document } = work
  const [{ chunks }, vectors] = await Promise.all([extractedOf(work), vectorsOf(work)])
  return {
    id: document._id,
    version: document.version,
    metadata: document.metadata,
    chunks: chunks.map((chunk) => ({
      hash: chunk.hash,
      text: chunk.text,
      locator: kept(chunk),
      vector: vectors.get(chunk.hash) ?? null,
    })),
  }
}

async function vectorsOf(work: Work): Promise<Map<string, Float32Array>> {
  const { document, collection } = work
  const length = collection.embedder.dimensions
  const vectors = new Map<string, Float32Array>()
  const hashes = ((await lackingOf(work)) ?? []).values()
  for (const blob of document.embedded) {
    const { buffer } = Uint8Array.from(await readBlob(blob)) // at the begin of a buffer of its own
    for (let at = 0; at < buffer.byteLength; at += length * Float32Array.BYTES_PER_ELEMENT)
      vectors.set(hashes.next().value ?? '', new Float32Array(buffer, at, length))
  }
  return vectors
}

/** Forgets the content of a document that is being deleted, and what was made of it. */
export const forgetContent = (id: string, operation_id: string): Promise<void> =>
  transaction(async () => {
    const document = await RagDocument.findOne({ _id: id, operation_id }).setOptions(everyTenant).lean()
    if (!document) return
    const { tenant_id } = document
    await dropBlobs(blobsOf(document))
    await RagDocument.updateOne({ _id: id, tenant_id }, { $set: { content: [], upload: null, ...noWork } })
    await closeLedger(tenant_id, { kind: 'document', id })
  })

/** Changes the record in one transaction with its blobs. Rejects if it is not as it was read: another attempt reads it again. */
const record = (
  { _id, tenant_id, operation_id }: RagDocumentDocument,
  asRead: object,
  changes: UpdateQuery<RagDocumentDocument>,
  { keep, drop = [] }: { keep?: BlobName; drop?: BlobName[] },
): Promise<void> =>
  transaction(async () => {
    const its = { _id, tenant_id, operation_id, ...asRead }
    const { matchedCount } = await RagDocument.updateOne(its, changes)
    if (!matchedCount) throw new Error(`the document ${_id} has changed since it was read`)
    if (keep) await keepBlob(keep)
    await dropBlobs(drop)
  })

async function keeping(bytes: Uint8Array, keep: (blob: BlobName) => Promise<void>): Promise<void> {
  const blob = await storeBlob(bytes)
  try {
    await keep(blob)
  } catch (error) {
    await dropUnkept(blob)
    throw error
  }
}

const json = (value: object): Buffer => Buffer.from(JSON.stringify(value))
const parsed = async <T>(blob: BlobName): Promise<T> => JSON.parse((await readBlob(blob)).toString()) as T

const bytesOf = ({ buffer, byteOffset, byteLength }: Float32Array): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength)

function needed(blob: BlobName | null): BlobName {
  if (!blob) throw new Error('this step comes before the document was read')
  return blob
}

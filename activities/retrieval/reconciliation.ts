import { setTimeout as delay } from 'node:timers/promises'
import { cancellationSignal } from '@temporalio/activity'
import type { Store } from '../../images/rag/store.ts'
import { Problem } from '../../lib/problem.ts'
import { RagCollection } from '../../models/retrieval/collections.ts'
import { RagDeletion } from '../../models/retrieval/deletions.ts'
import { acceptReindex } from '../../models/retrieval/document-acceptance.ts'
import {
  notIndexed,
  type PendingUpload,
  RagDocument,
  type RagDocumentDocument,
} from '../../models/retrieval/documents.ts'
import { lostFrom } from '../../models/retrieval/lineage.ts'
import { pinned } from '../../models/retrieval/embedders.ts'
import { storeAtWork } from '../../models/retrieval/store-condition.ts'
import { StoreError, type ErrorCode } from '../../models/retrieval/store-rules.ts'
import { RagStore, type RagStoreDocument } from '../../models/retrieval/stores.ts'

// Brings a store that has an earlier content to what the records say. Each step may be repeated.

const batch = 100
/** What the store took before it was replaced is recorded within a moment, unless its worker was killed then. */
const endsWithinMs = 60_000
const askEveryMs = 250

/**
 * Deletes what was deleted since, makes the collections that were made since, and begins to index the documents that the store
 * lacks or has in an earlier version. Throws what the store refuses.
 */
export async function reconcile(store: RagStoreDocument, since: Date): Promise<void> {
  const door = await storeAtWork(store.tenant_id)
  await deleteAgain(door, store, since)
  await endOfIndexing(store)
  await indexLost(store)
}

async function deleteAgain(door: Store, { tenant_id }: RagStoreDocument, since: Date): Promise<void> {
  // One that was deleted before the snapshot may have been made again before it.
  const collections = { tenant_id, version: null, at: { $gte: since } }
  for (const { collection_name } of await RagDeletion.find(collections).lean())
    await door.dropCollection(collection_name)
  const live = { tenant_id, status: { $ne: 'deleting' as const } }
  for (const { name, embedder, metadata_schema } of await RagCollection.find(live).lean())
    await door
      .createCollection(name, { embedder: pinned(embedder), metadata_schema })
      // An instance of the tenant has made it.
      .catch(unless('collection_exists'))
  const documents = { tenant_id, version: { $ne: null } }
  // A higher version: its deletion failed, and it was uploaded again.
  for (const { _id, collection_name, version } of await RagDeletion.find(documents).lean())
    await door
      .deleteDocument(collection_name, _id, version ?? 0)
      .catch(unless('collection_not_found', 'stale_version'))
}

/** Waits until what the former store took is recorded. */
async function endOfIndexing({ tenant_id }: RagStoreDocument): Promise<void> {
  const signal = cancellationSignal()
  const until = Date.now() + endsWithinMs
  const busy = { tenant_id, stage: 'indexing' as const, operation_id: { $type: 'string' as const } }
  const open = (await RagDocument.find(busy, { operation_id: 1 }).lean()).map((one) => one.operation_id)
  while (Date.now() < until && (await RagDocument.exists({ ...busy, operation_id: { $in: open } })))
    await delay(askEveryMs, undefined, { signal })
}

/** Begins to index documents that the store has lost. Also finds those whose work ended too late for a reconciliation. */
export async function indexLost({
  _id,
  tenant_id,
}: Pick<RagStoreDocument, '_id' | 'tenant_id'>): Promise<void> {
  const store = await RagStore.findOne({ _id, tenant_id }).lean()
  if (!store) return
  for (let after = ''; ; ) {
    const some = await RagDocument.find({ tenant_id, _id: { $gt: after }, ...lostFrom(store) })
      .sort({ _id: 1 })
      .limit(batch)
      .lean()
    for (const one of some) await regain(store, one)
    const last = some.at(-1)
    if (!last) return
    after = last._id
  }
}

async function regain(store: RagStoreDocument, document: RagDocumentDocument): Promise<void> {
  const { _id, tenant_id, operation_id, status, upload } = document
  if (status === 'deleting') return
  if (operation_id === null && status === 'ready') return again(document)
  // The content of the version that was found has been replaced. A failed upload leaves none in the index then.
  if (operation_id === null) await forget(document)
  const before: PendingUpload['before'] = { status: 'error', stage: 'failed', failed_stage: 'indexing' }
  await RagDocument.updateOne(
    { _id, tenant_id, operation_id, ...lostFrom(store) },
    // If a next content is on its way and does not come, a retry indexes the present one.
    { $set: { ...notIndexed, ...(upload?.before.status === 'ready' ? { 'upload.before': before } : {}) } },
  )
}

async function forget({ _id, tenant_id, collection_id, version }: RagDocumentDocument): Promise<void> {
  const collection = await RagCollection.findOne({ _id: collection_id, tenant_id }, { name: 1 }).lean()
  if (!collection) return
  const door = await storeAtWork(tenant_id)
  // A higher version: a retry has begun meanwhile, and is through already.
  await door
    .deleteDocument(collection.name, _id, version)
    .catch(unless('collection_not_found', 'stale_version'))
}

async function again(document: RagDocumentDocument): Promise<void> {
  try {
    await acceptReindex(document.tenant_id, document)
  } catch (error) {
    // Its collection or itself is being deleted, or work on it has begun.
    if (!(error instanceof Problem)) throw error
  }
}

/** For `catch`: takes these refusals for success. */
const unless =
  (...codes: ErrorCode[]) =>
  (error: unknown): undefined => {
    if (!(error instanceof StoreError && codes.includes(error.code))) throw error
  }

import { setTimeout as delay } from 'node:timers/promises'
import { cancellationSignal } from '@temporalio/activity'
import type { Store } from '../../images/rag/store.ts'
import { Problem } from '../../lib/problem.ts'
import { acceptFormerEmbedder } from '../../models/retrieval/collection-acceptance.ts'
import { RagCollection, type RagCollectionDocument } from '../../models/retrieval/collections.ts'
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
import { doorOf, storeAtWork } from '../../models/retrieval/store-condition.ts'
import { StoreError, type ErrorCode } from '../../models/retrieval/store-rules.ts'
import { RagStore, type RagStoreDocument } from '../../models/retrieval/stores.ts'

// Brings a store that has an earlier content to what the records say. Each step may be repeated.

const batch = 100
/** What the store took before it was replaced is recorded within a moment, unless its worker was killed then. */
const endsWithinMs = 60_000
const askEveryMs = 250

/**
 * Deletes what was deleted since the snapshot, and makes the collections that were made since. Only before others use the store:
 * a collection goes by its name, which another one may have by now. Throws what the store refuses.
 */
export async function deleteAgain(store: RagStoreDocument, since: Date): Promise<void> {
  const { tenant_id } = store
  const door = await restoredStore(store)
  // One that was deleted before the snapshot may have been made again before it.
  const collections = { tenant_id, version: null, at: { $gte: since } }
  for (const { collection_name } of await RagDeletion.find(collections).lean())
    await door.dropCollection(collection_name)
  for (const { name, embedder, metadata_schema } of await liveCollections(tenant_id))
    await door
      .createCollection(name, { embedder: pinned(embedder), metadata_schema })
      // It had another embedder then, or an instance of the tenant has made it.
      .catch(unless('collection_exists'))
  const documents = { tenant_id, version: { $ne: null } }
  // A higher version: its deletion failed, and it was uploaded again.
  for (const { _id, collection_name, version } of await RagDeletion.find(documents).lean())
    await door
      .deleteDocument(collection_name, _id, version ?? 0)
      .catch(unless('collection_not_found', 'stale_version'))
}

/** Begins to embed and to index what the store has in a former state, or has not. Throws what the store refuses. */
export async function indexAgain(store: RagStoreDocument): Promise<void> {
  await noteEmbedders(store)
  await endOfIndexing(store)
  await indexLost(store)
}

/** Not `storeAtWork`, which refuses until the store's record names the restored disk. */
async function restoredStore(store: RagStoreDocument): Promise<Store> {
  const door = await doorOf(store)
  if (!door) throw new StoreError('unavailable', 'The store is on no host')
  return door
}

const liveCollections = (tenant_id: string): Promise<RagCollectionDocument[]> =>
  RagCollection.find({ tenant_id, status: { $ne: 'deleting' } }).lean()

/** Where the store has a former embedder of a collection, the record says so from now on, and the collection changes again. */
async function noteEmbedders({ tenant_id }: RagStoreDocument): Promise<void> {
  const door = await storeAtWork(tenant_id)
  for (const collection of await liveCollections(tenant_id)) {
    const { name, embedder, next_embedder, former_embedders } = collection
    const there = await door.stats(name).catch(unless('collection_not_found'))
    const hash = there?.embedder.hash
    if (hash === undefined || hash === next_embedder?.hash) continue
    // A change was under way when the snapshot was taken.
    if (hash === embedder.hash && !next_embedder) await door.useEmbedder(name, pinned(embedder))
    const former = former_embedders.find((one) => one.hash === hash)
    if (hash !== embedder.hash && former) await unlessRefused(acceptFormerEmbedder(collection, former))
  }
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
  if (operation_id === null && status === 'ready')
    return unlessRefused(acceptReindex(document.tenant_id, document))
  // The content of the version that was found has been replaced, or will be. If that fails, none stays in the index.
  await forget(document)
  const before: PendingUpload['before'] = { status: 'error', stage: 'failed', failed_stage: 'indexing' }
  await RagDocument.updateOne(
    { _id, tenant_id, operation_id, ...lostFrom(store) },
    // If a next content is on its way and does not come, a retry indexes the present one.
    { $set: { ...notIndexed, ...(upload?.before.status === 'ready' ? { 'upload.before': before } : {}) } },
  )
}

async function forget(document: RagDocumentDocument): Promise<void> {
  const { _id, tenant_id, collection_id, operation_id, upload, version } = document
  const collection = await RagCollection.findOne({ _id: collection_id, tenant_id }, { name: 1 }).lean()
  if (!collection) return
  const door = await storeAtWork(tenant_id)
  // Of an upload that has come, the version is that of the work under way.
  const former = operation_id === null || upload ? version : version - 1
  // A higher version: work that was under way, or a retry, is through already.
  await door
    .deleteDocument(collection.name, _id, former)
    .catch(unless('collection_not_found', 'stale_version'))
}

/** Its collection or itself is being deleted, or work on it has begun. */
async function unlessRefused(accepting: Promise<unknown>): Promise<void> {
  try {
    await accepting
  } catch (error) {
    if (!(error instanceof Problem)) throw error
  }
}

/** For `catch`: takes these refusals for success. */
const unless =
  (...codes: ErrorCode[]) =>
  (error: unknown): undefined => {
    if (!(error instanceof StoreError && codes.includes(error.code))) throw error
  }

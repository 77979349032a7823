import { setTimeout as delay } from 'node:timers/promises'
import { ApplicationFailure, cancellationSignal } from '@temporalio/activity'
import type { Client } from '@temporalio/client'
import type { Store } from '../../images/rag/store.ts'
import {
  RagCollection,
  type RagCollectionDocument,
  takeNextEmbedder,
} from '../../models/retrieval/collections.ts'
import { forgetDeletions, noted, pruneDeletions } from '../../models/retrieval/deletions.ts'
import { forgetContent } from '../../models/retrieval/document-work.ts'
import { RagDocument } from '../../models/retrieval/documents.ts'
import { pinned } from '../../models/retrieval/embedders.ts'
import { forgetSome, type Part, workUnder } from '../../models/retrieval/forget.ts'
import { snapshotsWith } from '../../models/retrieval/snapshots.ts'
import { storeAtWork } from '../../models/retrieval/store-condition.ts'
import { StoreError } from '../../models/retrieval/store-rules.ts'
import { RagStore, type RagStoreDocument } from '../../models/retrieval/stores.ts'
import { stateOfUpload, takeUpload } from '../../models/retrieval/uploads.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { cancelIfOpen } from '../child-operations.ts'
import { patiently } from './patience.ts'
import { deleteAgain, indexAgain, indexLost } from './reconciliation.ts'

const askEveryMs = 250

/** Activities of collections, and of documents at their begin and end. */
export const makeRagCollectionActivities = ({ client }: { client: Client }) => ({
  /** Makes the collection in the store. Throws `collection_exists` if the store has one of this name that is not empty. */
  async makeRagCollection(id: string): Promise<void> {
    const { tenant_id, name, embedder, metadata_schema } = await collectionOf(id)
    const spec = { embedder: pinned(embedder), metadata_schema }
    await patiently(async () => {
      const store = await storeAtWork(tenant_id)
      // Empty ones are what a creation has left that was killed or cancelled.
      const { documents } = await store.createCollection(name, spec).catch(async (error: unknown) => {
        if (!isError(error, 'collection_exists')) throw error
        await dropEmpty(store, name)
        return store.createCollection(name, spec)
      })
      if (documents > 0)
        throw new StoreError(
          'collection_exists',
          'The store has a collection of this name that was not created here: drop it there, or use another name',
        )
    })
  },

  /**
   * Ends a change of the embedder: what the store has aside is dropped. If the store uses the next one already, so does the
   * record. Waits for a store that is away until it is back or goes away for good.
   */
  async settleRagEmbedder(id: string): Promise<void> {
    const collection = await RagCollection.findById(id).setOptions(everyTenant).lean()
    if (!collection || collection.status === 'deleting' || (await storeGoes(collection.tenant_id))) return
    const { tenant_id, name, embedder, next_embedder } = collection
    await patiently(
      async () => {
        const store = await storeAtWork(tenant_id)
        const used = await store
          .useEmbedder(name, pinned(embedder))
          // A store that does not know the call has nothing aside.
          .catch((error: unknown) => (isError(error, 'not_found') ? undefined : unlessGone(error)))
        if (used?.outcome !== 'vectors_missing' || !next_embedder) return
        const { embedder: present } = await store.stats(name)
        if (present.hash === next_embedder.hash) await takeNextEmbedder(collection)
      },
      { mostAttempts: Infinity },
    )
  },

  /** Removes the collection from the store, unless that goes away itself. What is not known to be this one only if it is empty. */
  async dropRagCollection(id: string): Promise<void> {
    const { tenant_id, name, in_store } = await collectionOf(id)
    if (await storeGoes(tenant_id)) return
    await patiently(async () => {
      const store = await storeAtWork(tenant_id)
      if (!in_store) return dropEmpty(store, name)
      const note = { _id: id, tenant_id, collection_name: name, version: null }
      await noted(note, () => store.dropCollection(name))
    })
  },

  /** Removes a document from the store, unless its collection or store goes away with all documents. */
  async removeRagDocument(id: string): Promise<void> {
    const document = await RagDocument.findById(id).setOptions(everyTenant).lean()
    if (!document) return
    const { tenant_id, collection_id, version } = document
    if (version === 0) return // nothing of it has ever come whole
    const collection = await RagCollection.findOne({ _id: collection_id, tenant_id }).lean()
    if (!collection || collection.status === 'deleting' || (await storeGoes(tenant_id))) return
    await patiently(async () => {
      const store = await storeAtWork(tenant_id)
      const note = { _id: id, tenant_id, collection_name: collection.name, version }
      await noted(note, () => store.deleteDocument(collection.name, id, version).catch(unlessGone))
    })
  },

  /** The snapshots of the store's disk that may have the document. */
  snapshotsWithRagDocument: snapshotsWith,

  async pruneRagDeletions(id: string): Promise<void> {
    const { tenant_id } = (await RagDocument.findById(id).setOptions(everyTenant).lean()) ?? {}
    if (tenant_id) await pruneDeletions(tenant_id)
  },

  deleteFromRagStore: (id: string, since: string): Promise<void> =>
    restoring(id, (store) => deleteAgain(store, new Date(since))),

  reindexRagStore: (id: string): Promise<void> => restoring(id, indexAgain),

  /** Forgets what no snapshot needs, and begins to index what a restored store lacks. */
  tidyRagStore: (id: string): Promise<void> =>
    restoring(id, async (store) => {
      await pruneDeletions(store.tenant_id)
      await indexLost(store)
    }),

  forgetContent,

  async uploadOfRagDocument(id: string, operationId: string): Promise<'taken' | 'whole' | 'open' | 'gone'> {
    return stateOfUpload(id, operationId)
  },

  takeUpload,

  /** Ends what is under way on documents (of a whole store: on collections, too), and waits for that. */
  async endRagWork(of: Part): Promise<void> {
    const signal = cancellationSignal()
    const told = new Set<string>()
    for (;;) {
      const open = await workUnder(of)
      if (!open.length) return
      for (const id of open) {
        if (!told.has(id)) await cancelIfOpen(client, id)
        told.add(id)
      }
      await delay(askEveryMs, undefined, { signal })
    }
  },

  /** Forgets the documents (of a whole store: the collections, too), with their blobs. */
  async forgetRagPart(of: Part): Promise<void> {
    while (await forgetSome(of)) {}
    if ('store_id' in of) await forgetDeletions(of.store_id)
  },
})

export type RagCollectionActivities = ReturnType<typeof makeRagCollectionActivities>

const restoring = (id: string, work: (store: RagStoreDocument) => Promise<void>): Promise<void> =>
  patiently(async () => {
    const store = await RagStore.findById(id).setOptions(everyTenant).lean()
    if (store && store.status !== 'deleting') await work(store)
  })

/** Throws `not_found`. */
async function collectionOf(id: string): Promise<RagCollectionDocument> {
  const collection = await RagCollection.findById(id).setOptions(everyTenant).lean()
  if (!collection) throw ApplicationFailure.nonRetryable('The collection no longer exists', 'not_found')
  return collection
}

/** Whether there is no store any more, or soon. */
export async function storeGoes(tenant_id: string): Promise<boolean> {
  const store = await RagStore.findOne({ tenant_id }, { status: 1 }).lean()
  return !store || store.status === 'deleting'
}

async function dropEmpty(store: Store, name: string): Promise<void> {
  const stats = await store.stats(name).catch(unlessGone)
  if (stats?.documents === 0) await store.dropCollection(name)
}

const isError = (error: unknown, code: StoreError['code']): boolean =>
  error instanceof StoreError && error.code === code

function unlessGone(error: unknown): undefined {
  if (!isError(error, 'collection_not_found')) throw error
}

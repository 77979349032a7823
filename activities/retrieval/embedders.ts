import { ApplicationFailure, cancellationSignal } from '@temporalio/activity'
import type { Aside, AsideVector } from '../../images/rag/store.ts'
import {
  RagCollection,
  type RagCollectionDocument,
  takeNextEmbedder,
} from '../../models/retrieval/collections.ts'
import { type CollectionEmbedder, pinned } from '../../models/retrieval/embedders.ts'
import { embedChunks } from '../../models/retrieval/embedding.ts'
import type { Embeddings } from '../../models/retrieval/embeddings.ts'
import { storeAtWork } from '../../models/retrieval/store-condition.ts'
import { StoreError } from '../../models/retrieval/store-rules.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { storeGoes } from './collections.ts'
import { batch, turnMs } from './documents.ts'
import { patiently } from './patience.ts'

/**
 * The steps of a change of a collection's embedder, on the queue of documents, where tenants take turns. The store knows which
 * chunks lack a vector of the next embedder, so that each step goes on where the one before has stopped.
 */
export const makeRagEmbedderActivities = ({ embeddings }: { embeddings: Embeddings }) => ({
  /** Embeds chunks by the next embedder, for one turn. Says how many of how many have its vector. */
  embedRagCollection: (id: string, operationId: string): Promise<{ embedded: number; all: number }> =>
    patiently(async () => {
      const until = Date.now() + turnMs
      const collection = await changing(id, operationId)
      const { next_embedder } = collection
      if (!next_embedder) return { embedded: 0, all: 0 }
      const { lacking, all } = await embedUntil(until, embeddings, collection, next_embedder)
      return { embedded: all - lacking, all }
    }),

  /** Has the store use the next embedder. False: what has changed meanwhile has taken its turn, and more is to be embedded. */
  useNextRagEmbedder: (id: string, operationId: string): Promise<boolean> =>
    patiently(async () => {
      const until = Date.now() + turnMs
      const collection = await changing(id, operationId)
      const { tenant_id, name, next_embedder } = collection
      if (!next_embedder) return true // a former attempt has recorded it
      const store = await storeAtWork(tenant_id)
      // An upload may add chunks at any moment: here there is none between their vectors and the next try.
      while ((await store.useEmbedder(name, pinned(next_embedder))).outcome === 'vectors_missing') {
        if (Date.now() > until) return false
        await embedUntil(until, embeddings, collection, next_embedder)
      }
      await takeNextEmbedder(collection)
      return true
    }),
})

export type RagEmbedderActivities = ReturnType<typeof makeRagEmbedderActivities>

/** The collection that this operation changes. Throws `superseded`. */
async function changing(id: string, operation_id: string): Promise<RagCollectionDocument> {
  const collection = await RagCollection.findOne({ _id: id, operation_id }).setOptions(everyTenant).lean()
  if (!collection)
    throw ApplicationFailure.nonRetryable('Another operation has taken over the collection', 'superseded')
  // Its deletion waits for this.
  if (await storeGoes(collection.tenant_id))
    throw ApplicationFailure.nonRetryable('The store is being deleted', 'superseded')
  return collection
}

/** Embeds chunks that lack a vector, until none does or the time has come. A killed worker loses one batch. */
async function embedUntil(
  until: number,
  embeddings: Embeddings,
  { _id, tenant_id, name }: RagCollectionDocument,
  embedder: CollectionEmbedder,
): Promise<Aside> {
  const store = await storeAtWork(tenant_id)
  const purpose = { kind: 'collection', id: _id } as const
  let vectors: AsideVector[] = []
  for (;;) {
    const aside = await store.putAside(name, pinned(embedder), vectors, batch).catch((error: unknown) => {
      if (!(error instanceof StoreError && error.code === 'embedder_mismatch')) throw error
      throw new Error('The store was restored just now: begin again', { cause: error })
    })
    if (!aside.lacking || Date.now() > until) return aside
    const texts = aside.chunks.map(({ text }) => text)
    const asked = { tenant_id, purpose, signal: cancellationSignal() }
    const made = await embedChunks(embeddings, embedder, texts, asked)
    vectors = aside.chunks.map(({ chunk }, index) => ({ chunk, vector: made[index] as Float32Array }))
  }
}

import { StateConflict } from '../../lib/problem.ts'
import { accepts, begin, type By, create } from '../acceptance.ts'
import type { Accepted } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { transaction } from '../database.ts'
import { mine } from '../resources.ts'
import {
  collectionNamed,
  RagCollection,
  type RagCollectionDocument,
  ragCollectionResource,
} from './collections.ts'
import { holdEmbedder } from './embedder-choice.ts'
import { type CollectionEmbedder, isSameEmbedder, pinned } from './embedders.ts'
import { checked } from './problems.ts'
import { storeOfTenant } from './store-acceptance.ts'
import { checkSpec } from './store-rules.ts'
import { type RagStoreDocument, ragStoreResource } from './stores.ts'
import { needUnused } from './uses.ts'

export interface NewRagCollection extends Pick<RagCollectionDocument, 'name' | 'metadata_schema'> {
  embedder: CollectionEmbedder
}

/**
 * Throws `retrieval_disabled`, StateConflict while the store is not ready, InvalidInput (the metadata schema), NotFound (a
 * connector that is gone now), and as `create`.
 */
export async function acceptCollection(
  by: By,
  { name, embedder, metadata_schema }: NewRagCollection,
): Promise<Accepted<RagCollectionDocument>> {
  checked(() => checkSpec({ embedder: pinned(embedder), metadata_schema }))
  const { _id: store_id, tenant_id } = await readyStore(by)
  return create(by, ragCollectionResource, {
    fields: {
      name,
      tags: {},
      store_id,
      embedder,
      next_embedder: null,
      former_embedders: [],
      metadata_schema,
      in_store: false,
      turns: 0,
    },
    reserve: async () => {
      await lockParent(ragStoreResource, tenant_id, store_id)
      await holdEmbedder(tenant_id, embedder)
    },
  })
}

/**
 * Accepts another embedder, or returns the collection alone if it has this one. Throws InvalidInput (its dimensions), NotFound
 * (the collection, or a connector that is gone now), and as `begin`.
 */
export async function acceptEmbedder(
  by: By,
  name: string,
  embedder: CollectionEmbedder,
): Promise<Accepted<RagCollectionDocument> | { document: RagCollectionDocument; operation: null }> {
  const there = await collectionNamed(by, name)
  const { _id, tenant_id, store_id, status, metadata_schema } = there
  if (status === 'ready' && isSameEmbedder(there.embedder, embedder))
    return { document: there, operation: null }
  checked(() => checkSpec({ embedder: pinned(embedder), metadata_schema }))
  return begin(by, ragCollectionResource, _id, 'update', {
    set: { next_embedder: embedder },
    reserve: async () => {
      await lockParent(ragStoreResource, tenant_id, store_id)
      await holdEmbedder(tenant_id, embedder)
    },
  })
}

/**
 * Records that a restored store has a former embedder of the collection, and begins to change back to the present one. A change
 * that is under way goes on from there. Throws NotFound.
 */
export const acceptFormerEmbedder = (
  { _id, tenant_id }: Pick<RagCollectionDocument, '_id' | 'tenant_id'>,
  former: CollectionEmbedder,
): Promise<void> =>
  transaction(async () => {
    const { status, embedder } = await mine(ragCollectionResource, { tenant_id }, _id)
    if (status === 'ready')
      await begin({ tenant_id, id: null }, ragCollectionResource, _id, 'update', {
        set: { next_embedder: embedder },
      })
    await RagCollection.updateOne(
      { _id, tenant_id },
      { $set: { embedder: former }, $addToSet: { former_embedders: embedder } },
    )
  }, tenant_id)

/** The tenant's store, if it takes collections. Throws `retrieval_disabled`, and StateConflict. */
export async function readyStore(by: Pick<By, 'tenant_id'>): Promise<RagStoreDocument> {
  const store = await storeOfTenant(by)
  // Away for the moment of a rotation.
  if (!['ready', 'updating', 'snapshotting'].includes(store.status))
    throw new StateConflict(`use the ${ragStoreResource.title}`, store.status)
  return store
}

/** What searches the collection keeps it, unless `force`. Throws NotFound, InUse, and as `begin`. */
export async function acceptCollectionDeletion(
  by: By,
  name: string,
  { force }: { force: boolean },
): Promise<Accepted<RagCollectionDocument>> {
  const { _id } = await collectionNamed(by, name)
  return begin(by, ragCollectionResource, _id, 'delete', {
    reserve: async (collection) => {
      if (!force) await needUnused(collection)
    },
  })
}

accepts(ragCollectionResource, {})

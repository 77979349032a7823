import type { EmbedderFacts } from '../../drivers/embedders.ts'
import { StateConflict } from '../../lib/problem.ts'
import { accepts, begin, type By, create } from '../acceptance.ts'
import type { Accepted } from '../operations.ts'
import { lockParent } from '../parents.ts'
import { collectionNamed, type RagCollectionDocument, ragCollectionResource } from './collections.ts'
import { checked } from './problems.ts'
import { storeOfTenant } from './store-acceptance.ts'
import { checkSpec } from './store-rules.ts'
import { type RagStoreDocument, ragStoreResource } from './stores.ts'
import { needUnused } from './uses.ts'

export interface NewRagCollection extends Pick<RagCollectionDocument, 'name' | 'metadata_schema'> {
  embedder: EmbedderFacts
}

/**
 * Throws `retrieval_disabled`, StateConflict while the store is not ready, InvalidInput (the metadata schema), and as
 * `create`.
 */
export async function acceptCollection(
  by: By,
  { name, embedder, metadata_schema }: NewRagCollection,
): Promise<Accepted<RagCollectionDocument>> {
  checked(() => checkSpec({ embedder, metadata_schema }))
  const { _id: store_id, tenant_id } = await readyStore(by)
  return create(by, ragCollectionResource, {
    fields: { name, tags: {}, store_id, embedder, metadata_schema, in_store: false, turns: 0 },
    reserve: async () => {
      await lockParent(ragStoreResource, tenant_id, store_id)
    },
  })
}

/** The tenant's store, if it takes collections. Throws `retrieval_disabled`, and StateConflict. */
export async function readyStore(by: Pick<By, 'tenant_id'>): Promise<RagStoreDocument> {
  const store = await storeOfTenant(by)
  // Away for the moment of a rotation.
  if (store.status !== 'ready' && store.status !== 'updating')
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

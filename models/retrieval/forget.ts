import { forgetActivity } from '../activity.ts'
import { dropBlobs } from '../blobs.ts'
import { transaction } from '../database.ts'
import { closeLedger } from '../llm/ledgers.ts'
import type { Resource } from '../resources.ts'
import { everyTenant } from '../tenant-scope.ts'
import { RagCollection, ragCollectionResource } from './collections.ts'
import { blobsOf, RagDocument } from './documents.ts'
import { ragStoreResource } from './stores.ts'

// What goes away with a collection or a whole store, in batches.

export type Part = { collection_id: string } | { store_id: string }

/** A transaction of a few hundred writes takes well under a second. */
const batch = 50

/** The open operations on documents (of a whole store: on collections, too). */
export async function workUnder(of: Part): Promise<string[]> {
  const { documents, collections } = await recordsOf(of)
  const busy = { operation_id: { $type: 'string' as const } }
  const found = await Promise.all([
    RagDocument.find({ ...documents, ...busy }, { operation_id: 1 }).lean(),
    collections ? RagCollection.find({ ...collections, ...busy }, { operation_id: 1 }).lean() : [],
  ])
  return found.flat().flatMap(({ operation_id }) => operation_id ?? [])
}

/** Forgets some documents, or, if there are none, a collection of the store. False: none was left. */
export async function forgetSome(of: Part): Promise<boolean> {
  const { tenant_id, documents, collections } = await recordsOf(of)
  return transaction(async () => {
    const some = await RagDocument.find(documents).limit(batch).lean()
    await dropBlobs(some.flatMap(blobsOf))
    for (const { _id } of some) {
      await RagDocument.deleteOne({ _id, tenant_id })
      await forgetActivity(tenant_id, _id)
      await closeLedger(tenant_id, { kind: 'document', id: _id })
    }
    if (some.length) return true
    const one = collections && (await RagCollection.findOne(collections, { _id: 1 }).lean())
    // What was embedded for the store is on the account of its own id (api/retrieval/collections.ts).
    const id = one?._id ?? ('store_id' in of ? of.store_id : of.collection_id)
    await closeLedger(tenant_id, { kind: 'collection', id })
    if (one) await RagCollection.deleteOne({ _id: one._id, tenant_id })
    return one !== null
  })
}

/** The filters of the records; no collections if a collection goes away by itself. */
async function recordsOf(of: Part) {
  if ('store_id' in of) {
    const tenant_id = await tenantOf(ragStoreResource, of.store_id)
    return { tenant_id, documents: { tenant_id }, collections: { tenant_id } }
  }
  const { collection_id } = of
  const tenant_id = await tenantOf(ragCollectionResource, collection_id)
  return { tenant_id, documents: { tenant_id, collection_id }, collections: null }
}

const tenantOf = async ({ model }: Pick<Resource, 'model'>, id: string): Promise<string> =>
  (await model.findById(id, { tenant_id: 1 }).setOptions(everyTenant).lean())?.tenant_id ?? ''

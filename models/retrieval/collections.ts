import mongoose, { Schema } from 'mongoose'
import type { MetadataSchema } from '../../images/rag/store.ts'
import { NotFound, StateConflict } from '../../lib/problem.ts'
import { usesConnectors } from '../connectors/uses.ts'
import { parentFields, type ParentDocument } from '../parents.ts'
import { defineResource, type ResourceDocument, resourceSchema } from '../resources.ts'
import { type StateOf, states } from '../states.ts'
import type { CollectionEmbedder } from './embedders.ts'

export const ragCollectionStates = states(
  {
    creating: {},
    ready: { update: 'updating', delete: 'deleting' },
    error: { delete: 'deleting' },
  },
  { supersede: ['delete'], final: ['delete'] },
)

/** Documents that are searched together. They have one embedder and one metadata schema. */
export interface RagCollectionDocument
  extends ResourceDocument<StateOf<typeof ragCollectionStates>>,
    ParentDocument {
  store_id: string
  /** Its vectors are of this model alone. */
  embedder: CollectionEmbedder
  /** The one that is to take its place, while its vectors are made. Null: it stays. */
  next_embedder: CollectionEmbedder | null
  /** Those that a snapshot of the store may have. */
  former_embedders: CollectionEmbedder[]
  /** The fields of documents by which searches may filter. */
  metadata_schema: MetadataSchema
  /** The store has made it. Until then, a collection of its name there is not known to be this one. */
  in_store: boolean
}

const { Mixed } = Schema.Types
const schema = resourceSchema<RagCollectionDocument>(
  {
    store_id: { type: String, required: true },
    embedder: { type: Mixed, required: true },
    next_embedder: { type: Mixed, default: null },
    former_embedders: { type: [Mixed], default: [] },
    metadata_schema: { type: Mixed, required: true },
    in_store: { type: Boolean, default: false },
    ...parentFields,
  },
  ragCollectionStates,
  'rag_collections',
)

export const RagCollection = mongoose.model<RagCollectionDocument>('RagCollection', schema)
export const ragCollectionResource = defineResource('rag_collection', RagCollection, ragCollectionStates, {
  title: 'collection',
})

usesConnectors('collection', async ({ _id, tenant_id }) => {
  const uses = [{ 'embedder.connector_id': _id }, { 'next_embedder.connector_id': _id }]
  const collections = await RagCollection.find({ tenant_id, $or: uses }, { name: 1 }).lean()
  return collections.map((one) => ({ id: one._id, name: one.name }))
})

/** The tenant's collection of this name. Throws NotFound. */
export async function collectionNamed(
  { tenant_id }: { tenant_id: string },
  name: string,
): Promise<RagCollectionDocument> {
  const collection = await RagCollection.findOne({ tenant_id, managed_by: null, name }).lean()
  if (!collection) throw new NotFound(ragCollectionResource.title)
  return collection
}

/** Throws StateConflict unless the store has the collection. */
export function needReady({ status }: Pick<RagCollectionDocument, 'status'>, verb: string): void {
  if (status !== 'ready' && status !== 'updating') throw new StateConflict(verb, status)
}

/** Records that the store uses the next embedder. Does nothing if another operation has the collection, or it is recorded. */
export async function takeNextEmbedder(
  changing: Pick<RagCollectionDocument, '_id' | 'tenant_id' | 'operation_id' | 'embedder' | 'next_embedder'>,
): Promise<void> {
  const { _id, tenant_id, operation_id, embedder, next_embedder } = changing
  if (!next_embedder) return
  await RagCollection.updateOne(
    { _id, tenant_id, operation_id, 'next_embedder.hash': next_embedder.hash },
    { $set: { embedder: next_embedder, next_embedder: null }, $addToSet: { former_embedders: embedder } },
  )
}

import mongoose, { Schema } from 'mongoose'
import type { EmbedderFacts } from '../../drivers/embedders.ts'
import type { MetadataSchema } from '../../images/rag/store.ts'
import { NotFound, StateConflict } from '../../lib/problem.ts'
import { parentFields, type ParentDocument } from '../parents.ts'
import { defineResource, type ResourceDocument, resourceSchema } from '../resources.ts'
import { type StateOf, states } from '../states.ts'

export const ragCollectionStates = states(
  {
    creating: {},
    ready: { delete: 'deleting' },
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
  embedder: EmbedderFacts
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
  if (status !== 'ready') throw new StateConflict(verb, status)
}

import { makeUsers } from '../uses.ts'
import type { RagCollectionDocument } from './collections.ts'

const users = makeUsers<Pick<RagCollectionDocument, '_id' | 'tenant_id'>>('collection')

/** Declares what searches collections (models/uses.ts). */
export const usesCollections = users.declare

/** Throws InUse. Call in the transaction that accepts the deletion, after a write to the collection. */
export const needUnused = users.needNone

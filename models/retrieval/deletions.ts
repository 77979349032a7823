import mongoose, { Schema } from 'mongoose'
import { schemaOptions } from '../schemas.ts'
import { Snapshot } from '../storage/snapshots.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { safelyBefore } from './lineage.ts'
import { RagStore } from './stores.ts'

// What was deleted from a store while a snapshot may have it: a store that is restored from it deletes it again.

export interface RagDeletionDocument {
  /** Of the document, or of the collection. */
  _id: string
  tenant_id: string
  /** Its name. */
  collection_name: string
  /** The highest version of the document. Null: the whole collection. */
  version: number | null
  /** When it was done, or begun. */
  at: Date
}

const schema = new Schema<RagDeletionDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    collection_name: { type: String, required: true },
    version: { type: Number, default: null },
    at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'rag_deletions' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, at: 1 })
export const RagDeletion = mongoose.model<RagDeletionDocument>('RagDeletion', schema)

/** Carries out a deletion in the store, and keeps a note of it while a snapshot may have what was deleted. */
export async function noted(
  { _id, tenant_id, collection_name, version }: Omit<RagDeletionDocument, 'at'>,
  carryOut: () => Promise<unknown>,
): Promise<void> {
  const note = { _id, tenant_id }
  const now = () => ({ $set: { collection_name, version, at: new Date() } })
  // Before, so that a process that is killed in between leaves it.
  await RagDeletion.updateOne(note, now(), { upsert: true })
  await carryOut()
  // A snapshot that is accepted from now on does not have it.
  if (await oldestNeed(tenant_id)) await RagDeletion.updateOne(note, now())
  else await RagDeletion.deleteOne(note)
}

/** Forgets notes that no snapshot needs. */
export async function pruneDeletions(tenant_id: string): Promise<void> {
  const oldest = (await oldestNeed(tenant_id)) ?? new Date()
  await RagDeletion.deleteMany({ tenant_id, at: { $lt: safelyBefore(oldest) } })
}

/** Forgets all notes of a store that is being deleted. */
export async function forgetDeletions(store_id: string): Promise<void> {
  const store = await RagStore.findById(store_id, { tenant_id: 1 }).setOptions(everyTenant).lean()
  if (store) await RagDeletion.deleteMany({ tenant_id: store.tenant_id })
}

/** When the oldest snapshot was asked for that may be restored. Null: there is none. */
async function oldestNeed(tenant_id: string): Promise<Date | null> {
  const store = await RagStore.findOne({ tenant_id }, { disk_id: 1, status: 1 }).lean()
  if (!store?.disk_id) return null
  // From a snapshot that may be gone by now.
  if (store.status === 'restoring') return new Date(0)
  const its = { tenant_id, disk_id: store.disk_id }
  const oldest = await Snapshot.findOne(its, { created_at: 1 }).sort({ created_at: 1 }).lean()
  return oldest?.created_at ?? null
}

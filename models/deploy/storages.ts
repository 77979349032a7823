import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { documentOptions, idField } from '../resources.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { Application, type ApplicationDocument } from './applications.ts'

// The persistent volumes of applications. A volume is on one worker, so all replicas of its application run there. A
// deployment applies what has changed here: it mounts new volumes, and destroys those that were removed.

export interface StorageDocument {
  _id: string
  tenant_id: string
  deploy_server_id: string
  app_id: string
  /** Unique in the application, as is its path. */
  name: string
  mount_path: string
  created_at: Date
  updated_at: Date
}

const schema = new Schema<StorageDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    deploy_server_id: { type: String, required: true },
    app_id: { type: String, required: true },
    name: { type: String, required: true },
    mount_path: { type: String, required: true },
  },
  { ...documentOptions, collection: 'storages' },
)
tenantScoped(schema)
schema.index({ app_id: 1, name: 1 }, { unique: true })
schema.index({ app_id: 1, mount_path: 1 }, { unique: true })
schema.index({ deploy_server_id: 1 })
export const Storage = mongoose.model<StorageDocument>('Storage', schema)

export const storagesAtMost = 20

/** Throws NotFound, `storage_taken` and `too_many_storages`. */
export const createStorage = (
  { _id: app_id, tenant_id, deploy_server_id }: ApplicationDocument,
  fields: Pick<StorageDocument, 'name' | 'mount_path'>,
): Promise<StorageDocument> =>
  transaction(async () => {
    const owner = { _id: app_id, tenant_id, status: 'active' as const }
    // Touched, so that a deletion that is accepted meanwhile comes first or sees the storage.
    const there = await Application.updateOne(owner, { $set: { updated_at: new Date() } })
    if (there.matchedCount === 0) throw new NotFound('application')
    if ((await Storage.countDocuments({ app_id, tenant_id })) >= storagesAtMost) {
      const detail = `An application has at most ${storagesAtMost} storages`
      throw new Problem(409, 'too_many_storages', 'Too many storages', detail)
    }
    const its = { _id: newId(), tenant_id, deploy_server_id, app_id }
    return (await new Storage({ ...fields, ...its }).save()).toObject()
  }, app_id).catch((error: unknown) => {
    if (!isDuplicateKey(error)) throw error
    const detail = 'The application has a storage with this name or path'
    throw new Problem(409, 'storage_taken', 'The storage is there already', detail)
  })

/** Removes a storage of the application. The next deployment destroys its volume. Throws NotFound. */
export async function deleteStorage(
  { _id: app_id, tenant_id }: ApplicationDocument,
  id: string,
): Promise<void> {
  const { deletedCount } = await Storage.deleteOne({ _id: id, app_id, tenant_id })
  if (!deletedCount) throw new NotFound('storage')
}

/** What a deployment mounts. */
export async function mountsOf({
  _id: app_id,
  tenant_id,
}: ApplicationDocument): Promise<{ id: string; mount_path: string }[]> {
  const storages = await Storage.find({ app_id, tenant_id }).sort({ _id: 1 }).lean()
  return storages.map(({ _id, mount_path }) => ({ id: _id, mount_path }))
}

/** Throws `storage_on_worker` if a worker with volumes would be removed. */
export async function needNoVolumesBeyond(
  { _id, tenant_id }: { _id: string; tenant_id: string },
  workerCount: number,
): Promise<void> {
  const pinned = await Application.find(
    { tenant_id, deploy_server_id: _id, volume_node: { $ne: null } },
    { name: 1, volume_node: 1 },
  ).lean()
  const lost = pinned.find(({ volume_node }) => Number(volume_node?.slice(1)) > workerCount)
  if (!lost) return
  const detail = `${lost.volume_node} has the volumes of the application ${lost.name}, which would be lost: remove its storages and deploy it, or delete it`
  throw new Problem(409, 'storage_on_worker', 'A worker has volumes', detail)
}

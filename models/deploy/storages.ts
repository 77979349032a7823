import mongoose, { type Model, Schema } from 'mongoose'
import type { VolumeOwnerKind } from '../../lib/deploy-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { documentOptions, idField } from '../resources.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { Application } from './applications.ts'
import { Database } from './databases.ts'
import { KeptServiceVolumes } from './kept-service-volumes.ts'
import { KeptVolumes } from './kept-volumes.ts'
import { openRevision, Service } from './services.ts'

// Persistent volumes. A volume is on one worker, so what mounts it runs there. The owner's next start applies what has
// changed here: it mounts new volumes, and destroys those that were removed.

/** What has storages, as far as this file needs it. */
export interface StorageOwner {
  _id: string
  tenant_id: string
  deploy_server_id: string
  name: string
  /** The worker that has its volumes. Null: it has none yet. */
  volume_node: string | null
}

const modelOf = (model: unknown): Model<StorageOwner> => model as Model<StorageOwner>

/** `alive` matches owners that are not being deleted. */
const owners: Record<VolumeOwnerKind, { model: Model<StorageOwner>; alive: object }> = {
  application: { model: modelOf(Application), alive: { status: 'active' } },
  database: { model: modelOf(Database), alive: { status: { $ne: 'deleting' } } },
  service: { model: modelOf(Service), alive: { status: { $ne: 'deleting' } } },
}

/** What keeps its worker from going, and what to do before. */
const pinning = [
  { what: 'application', ...owners.application, remedy: 'remove its storages and deploy it, or delete it' },
  { what: 'database', ...owners.database, remedy: 'delete it with its volumes' },
  { what: 'deleted database', model: modelOf(KeptVolumes), remedy: 'delete the kept volume' },
  { what: 'service', ...owners.service, remedy: 'delete it with its volumes' },
  {
    what: 'deleted service',
    model: modelOf(KeptServiceVolumes),
    remedy: 'create a service of this name, and delete it with its volumes',
  },
]

export interface StorageDocument {
  _id: string
  tenant_id: string
  deploy_server_id: string
  /** Its owner of any kind. The name is from when only applications had storages. */
  app_id: string
  /** The container of a service that mounts it. */
  container?: string
  /** Unique in the owner, as is its path. */
  name: string
  mount_path: string
  /** Its owner's data: it cannot be removed. */
  essential?: true
  created_at: Date
  updated_at: Date
}

const schema = new Schema<StorageDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    deploy_server_id: { type: String, required: true },
    app_id: { type: String, required: true },
    container: String,
    name: { type: String, required: true },
    mount_path: { type: String, required: true },
    essential: Boolean,
  },
  { ...documentOptions, collection: 'storages' },
)
tenantScoped(schema)
schema.index({ app_id: 1, name: 1 }, { unique: true })
schema.index({ app_id: 1, mount_path: 1 }, { unique: true })
schema.index({ deploy_server_id: 1 })
export const Storage = mongoose.model<StorageDocument>('Storage', schema)

export const storagesAtMost = 20

/** The name of a storage’s volume on its worker. */
export const volumeOf = (storageId: string): string => `keelson-${storageId}`

/** Throws NotFound, `storage_taken` and `too_many_storages`. */
export const createStorage = (
  kind: VolumeOwnerKind,
  { _id: app_id, tenant_id, deploy_server_id }: StorageOwner,
  fields: Pick<StorageDocument, 'name' | 'mount_path' | 'container'>,
): Promise<StorageDocument> =>
  transaction(async () => {
    const { model, alive } = owners[kind]
    const owner = { _id: app_id, tenant_id, ...alive }
    // Touched, so that a deletion that is accepted meanwhile comes first or sees the storage.
    const there = await model.updateOne(owner, { $set: { updated_at: new Date() } })
    if (there.matchedCount === 0) throw new NotFound(kind)
    if ((await Storage.countDocuments({ app_id, tenant_id })) >= storagesAtMost) {
      const detail = `The ${kind} has ${storagesAtMost} storages, and may have no more`
      throw new Problem(409, 'too_many_storages', 'Too many storages', detail)
    }
    const its = { _id: newId(), tenant_id, deploy_server_id, app_id }
    return (await new Storage({ ...fields, ...its }).save()).toObject()
  }, app_id).catch((error: unknown) => {
    if (!isDuplicateKey(error)) throw error
    const detail = `The ${kind} has a storage with this name or path`
    throw new Problem(409, 'storage_taken', 'The storage already exists', detail)
  })

/** The storage of an owner's data, in the transaction that makes the owner. */
export const addDataStorage = async (
  { _id: app_id, tenant_id, deploy_server_id }: Omit<StorageOwner, 'name' | 'volume_node'>,
  mount_path: string,
): Promise<void> => {
  const data = { name: 'data', mount_path, essential: true }
  await new Storage({ tenant_id, deploy_server_id, app_id, ...data }).save()
}

/** The storage of an owner's data. Throws NotFound. */
export async function dataStorageOf({
  _id: app_id,
  tenant_id,
}: Pick<StorageOwner, '_id' | 'tenant_id'>): Promise<StorageDocument> {
  const storage = await Storage.findOne({ app_id, tenant_id, essential: true }).lean()
  if (!storage) throw new NotFound('storage')
  return storage
}

/** Puts another volume in the place of an owner's data, in the caller's transaction. The former volume stays on its worker. */
export async function replaceDataStorage(storage: StorageDocument, id: string): Promise<void> {
  const { _id, tenant_id, created_at: _created, updated_at: _updated, ...fields } = storage
  await Storage.deleteOne({ _id, tenant_id })
  await new Storage({ ...fields, tenant_id, _id: id }).save()
}

/** Removes a storage. Its owner's next start destroys the volume. Throws NotFound and `storage_essential`. */
export async function deleteStorage(
  { _id: app_id, tenant_id }: Pick<StorageOwner, '_id' | 'tenant_id'>,
  id: string,
): Promise<void> {
  const { deletedCount } = await Storage.deleteOne({
    _id: id,
    app_id,
    tenant_id,
    essential: { $exists: false },
  })
  if (deletedCount) return
  if (!(await Storage.exists({ _id: id, app_id, tenant_id }))) throw new NotFound('storage')
  const detail = 'The volume has the data of its database: delete the database with its volumes'
  throw new Problem(409, 'storage_essential', 'The storage cannot be removed', detail)
}

/** What the owner mounts at its next start. */
export async function mountsOf({
  _id: app_id,
  tenant_id,
}: Pick<StorageOwner, '_id' | 'tenant_id'>): Promise<{ id: string; mount_path: string }[]> {
  const storages = await Storage.find({ app_id, tenant_id }).sort({ _id: 1 }).lean()
  return storages.map(({ _id, mount_path }) => ({ id: _id, mount_path }))
}

/** The storages of a service, each with the container that mounts it. */
export const storagesOfService = (tenant_id: string, app_id: string): Promise<StorageDocument[]> =>
  Storage.find({ app_id, tenant_id }).sort({ _id: 1 }).lean()

/** Deletes the records of an owner's storages, or of all of a deploy server. */
export async function forgetStorages(
  tenant_id: string,
  of: { owner_id: string } | { deploy_server_id: string },
): Promise<void> {
  await Storage.deleteMany('owner_id' in of ? { tenant_id, app_id: of.owner_id } : { tenant_id, ...of })
}

type OfServer = { _id: string; tenant_id: string }
/** `remedy`: what to do before its worker may go. */
type Pinned = StorageOwner & { what: string; remedy: string }

const pinnedWhere = async ({ _id, tenant_id }: OfServer, volume_node: unknown): Promise<Pinned[]> => {
  const found = pinning.map(async ({ what, model, remedy }) => {
    const pinned = await model.find({ tenant_id, deploy_server_id: _id, volume_node } as object).lean()
    return pinned.map((owner) => ({ ...owner, what, remedy }))
  })
  return (await Promise.all(found)).flat()
}

/** All that has volumes on a worker. A service without any can start again on the machine that replaces its worker. */
export async function withVolumesOn(server: OfServer, node: string): Promise<Pinned[]> {
  const pinned = await pinnedWhere(server, node)
  const others = await servicesWithoutVolumes(
    server.tenant_id,
    pinned.map(({ _id }) => _id),
  )
  return pinned.filter(({ _id }) => !others.has(_id))
}

/** Those of these services that have no volumes, and get none by a change under way. */
async function servicesWithoutVolumes(tenant_id: string, ids: string[]): Promise<Set<string>> {
  const found = await Service.find(
    { _id: { $in: ids }, tenant_id, volumes: [], has_unknown_volumes: { $ne: true } },
    { next_sealed: 1 },
  ).lean()
  const without = new Set<string>()
  // One after another: they may be in one transaction.
  for (const { _id, next_sealed } of found) {
    const next = next_sealed === '-' ? null : await openRevision(tenant_id, next_sealed)
    if (!next?.plan.volumes.length) without.add(_id)
  }
  const stored = await Storage.distinct('app_id', { tenant_id, app_id: { $in: [...without] } })
  for (const id of stored) without.delete(id)
  return without
}

/** Throws `storage_on_worker` if a worker with volumes would be removed. */
export async function needNoVolumesBeyond(server: OfServer, workerCount: number): Promise<void> {
  const pinned = await pinnedWhere(server, { $ne: null })
  const lost = pinned.find(({ volume_node }) => Number(volume_node?.slice(1)) > workerCount)
  if (!lost) return
  const { what, name, volume_node, remedy } = lost
  const detail = `${volume_node} has the volumes of the ${what} ${name}, which would be lost: ${remedy}`
  throw new Problem(409, 'storage_on_worker', 'A worker has volumes', detail)
}

import mongoose, { Schema } from 'mongoose'
import { NotFound } from '../../lib/problem.ts'
import { defineResource, mine, type ResourceDocument, resourceSchema } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { type StateOf, states } from '../states.ts'
import { everyTenant } from '../tenant-scope.ts'
import { credentialsContext, type DatabaseDocument, type FormerVolume } from './databases.ts'
import { deployServerResource } from './deploy-servers.ts'
import { type DatabaseType, databaseTypes } from './engines/index.ts'

export const keptVolumesStates = states(
  { kept: { delete: 'deleting' }, error: { delete: 'deleting' } },
  { final: ['delete'] },
)

/**
 * The volumes of a deleted database. It has the database's id, and so has the database that takes them: they keep
 * their labels, their storages and the passwords that are in the data.
 */
export interface KeptVolumesDocument extends ResourceDocument<StateOf<typeof keptVolumesStates>> {
  deploy_server_id: string
  type: DatabaseType
  /** What has last written them. */
  version: string
  credentials_sealed: string
  volume_node: string
  former_volumes: FormerVolume[]
}

const schema = resourceSchema<KeptVolumesDocument>(
  {
    deploy_server_id: { type: String, required: true },
    type: { type: String, required: true, enum: databaseTypes },
    version: { type: String, required: true },
    credentials_sealed: { type: String, required: true },
    volume_node: { type: String, required: true },
    former_volumes: { type: [Schema.Types.Mixed], default: [] },
  },
  keptVolumesStates,
  'kept_volumes',
  { within: '_id' }, // databases of one name, deleted one after another
)
schema.index({ deploy_server_id: 1 })
export const KeptVolumes = mongoose.model<KeptVolumesDocument>('KeptVolumes', schema)
export const keptVolumesResource = defineResource('kept_volumes', KeptVolumes, keptVolumesStates, {
  title: 'kept volume',
})
sealedField(KeptVolumes, 'credentials_sealed', ({ _id }) => credentialsContext(_id))

/** Keeps the volumes of a database that is about to be gone. Idempotent. */
export async function keepVolumesOf(database: DatabaseDocument): Promise<void> {
  const { _id, tenant_id, name, tags, deploy_server_id, type, credentials_sealed } = database
  const { volume_node, applied, former_volumes } = database
  const version = applied?.version ?? database.version
  const kept = {
    name,
    tags,
    deploy_server_id,
    type,
    version,
    credentials_sealed,
    volume_node,
    former_volumes,
    status: 'kept',
  }
  if (await KeptVolumes.exists({ _id, tenant_id })) return
  await new KeptVolumes({ _id, tenant_id, ...kept }).save()
}

/** Takes kept volumes for a new database: they are its own from then on. Throws NotFound. */
export async function takeKeptVolumes(
  tenant_id: string,
  deploy_server_id: string,
  _id: string,
): Promise<KeptVolumesDocument> {
  const kept = await KeptVolumes.findOne({ _id, tenant_id, deploy_server_id, status: 'kept' }).lean()
  if (!kept) throw new NotFound('kept volume')
  await KeptVolumes.deleteOne({ _id, tenant_id })
  return kept
}

/** The kept volumes of this deploy server of the caller's tenant. Throws NotFound. */
export async function keptVolumesOf(
  caller: { tenant_id: string },
  deployServerId: string,
  id: string,
): Promise<KeptVolumesDocument> {
  await mine(deployServerResource, caller, deployServerId)
  const kept = await mine(keptVolumesResource, caller, id)
  if (kept.deploy_server_id !== deployServerId) throw new NotFound('kept volume')
  return kept
}

/** The kept volumes without a check of the tenant, for activities. Null if they are gone. */
export const findKeptVolumes = (id: string): Promise<KeptVolumesDocument | null> =>
  KeptVolumes.findById(id).setOptions(everyTenant).lean()

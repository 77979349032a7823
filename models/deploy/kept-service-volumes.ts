import mongoose, { Schema } from 'mongoose'
import { isDuplicateKey } from '../database.ts'
import { documentOptions, idField } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { tenantScoped } from '../tenant-scope.ts'
import type { ServiceDocument } from './services.ts'

// The volumes of a service that was deleted without them. The next service of the same name takes them over: it has the
// former one's id, so that its volumes have their names, and its generated values, which are in the data.

export interface KeptServiceVolumesDocument {
  /** Of the deleted service. */
  _id: string
  tenant_id: string
  deploy_server_id: string
  name: string
  volume_node: string
  /** By their names in its texts. Not there: a former release kept them, and did not note which there are. */
  volumes?: string[]
  generated_sealed: string
  created_at: Date
  updated_at: Date
}

const schema = new Schema<KeptServiceVolumesDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    deploy_server_id: { type: String, required: true },
    name: { type: String, required: true },
    volume_node: { type: String, required: true },
    volumes: { type: [String], default: undefined },
    generated_sealed: { type: String, required: true },
  },
  { ...documentOptions, collection: 'kept_service_volumes' },
)
tenantScoped(schema)
schema.index({ deploy_server_id: 1, name: 1 }, { unique: true })
export const KeptServiceVolumes = mongoose.model<KeptServiceVolumesDocument>('KeptServiceVolumes', schema)
const contextOf = (id: string): string => `kept_service_volumes.generated:${id}`
sealedField(KeptServiceVolumes, 'generated_sealed', ({ _id }) => contextOf(_id))

/** Keeps the volumes of a service that is about to be gone. Idempotent. */
export async function keepVolumesOfService(
  { _id, tenant_id, deploy_server_id, name, volume_node, volumes, has_unknown_volumes }: ServiceDocument,
  generated: Record<string, string>,
): Promise<void> {
  const generated_sealed = await sealSecret(generated, contextOf(_id))
  const known = has_unknown_volumes ? {} : { volumes }
  const kept = { _id, tenant_id, deploy_server_id, name, volume_node, ...known, generated_sealed }
  await new KeptServiceVolumes(kept).save().catch((error: unknown) => {
    if (!isDuplicateKey(error)) throw error
  })
}

interface TakenVolumes {
  /** The next service's id. */
  id: string
  volume_node: string
  /** Null: unknown. */
  volumes: string[] | null
  generated: Record<string, string>
}

/** Takes the kept volumes of a service of this name, in the transaction that makes the next one. Null: there are none. */
export async function takeKeptVolumes(
  tenant_id: string,
  deploy_server_id: string,
  name: string,
): Promise<TakenVolumes | null> {
  const kept = await KeptServiceVolumes.findOneAndDelete({ tenant_id, deploy_server_id, name }).lean()
  if (!kept) return null
  const generated = await unsealSecret<Record<string, string>>(kept.generated_sealed, contextOf(kept._id))
  return { id: kept._id, volume_node: kept.volume_node, volumes: kept.volumes ?? null, generated }
}

import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { registryOf } from '../../lib/image-policy.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import type { RegistryLogin } from '../../lib/registry-login.ts'
import { hintOf } from '../../lib/secret-hints.ts'
import { transaction } from '../database.ts'
import { tenantResource } from '../identity/tenants.ts'
import { lockParent } from '../parents.ts'
import { documentOptions, idField } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { tenantScoped } from '../tenant-scope.ts'
import type { InstanceDocument } from './instances.ts'

/** How a tenant signs in at a registry. A host gets it for the pull of an image of the tenant's. */
export interface RegistryCredentialDocument {
  _id: string
  tenant_id: string
  /** As `registryOf` names it. Unique in the tenant. */
  registry: string
  username: string
  password_sealed: string
  password_hint: string | null
  /** Counts the changes. */
  version: number
  created_at: Date
  updated_at: Date
}

const schema = new Schema<RegistryCredentialDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    registry: { type: String, required: true },
    username: { type: String, required: true },
    password_sealed: { type: String, required: true },
    password_hint: { type: String, default: null },
    version: { type: Number, required: true },
  },
  { ...documentOptions, collection: 'registry_credentials' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, registry: 1 }, { unique: true })
export const RegistryCredential = mongoose.model<RegistryCredentialDocument>('RegistryCredential', schema)
const contextOf = (id: string): string => `registry_credentials.password:${id}`
sealedField(RegistryCredential, 'password_sealed', ({ _id }) => contextOf(_id))

export const registryCredentialsAtMost = 50

/** Adds the credentials of a registry, or replaces them. Throws `too_many_registry_credentials`. */
export const keepRegistryCredential = (
  tenant_id: string,
  { registry, username, password }: Record<'registry' | 'username' | 'password', string>,
): Promise<{ credential: RegistryCredentialDocument; isNew: boolean }> =>
  transaction(async () => {
    await lockParent(tenantResource, tenant_id, tenant_id)
    const former = await RegistryCredential.findOne({ tenant_id, registry }).lean()
    if (!former && (await RegistryCredential.countDocuments({ tenant_id })) >= registryCredentialsAtMost)
      throw new Problem(
        409,
        'too_many_registry_credentials',
        'Too many registry credentials',
        `The tenant has credentials for ${registryCredentialsAtMost} registries, and may have no more`,
      )
    const _id = former?._id ?? newId()
    const password_sealed = await sealSecret(password, contextOf(_id))
    const set = { username, password_sealed, password_hint: hintOf(password) }
    if (!former) {
      const made = await new RegistryCredential({ ...set, _id, tenant_id, registry, version: 1 }).save()
      return { credential: made.toObject(), isNew: true }
    }
    const changed = await RegistryCredential.findOneAndUpdate(
      { _id, tenant_id },
      { $set: set, $inc: { version: 1 } },
      { returnDocument: 'after' },
    ).lean()
    if (!changed) throw new NotFound('registry credential')
    return { credential: changed, isNew: false }
  }, tenant_id)

/** Throws NotFound. */
export async function registryCredentialOf(
  tenant_id: string,
  _id: string,
): Promise<RegistryCredentialDocument> {
  const credential = await RegistryCredential.findOne({ _id, tenant_id }).lean()
  if (!credential) throw new NotFound('registry credential')
  return credential
}

/** Throws NotFound. */
export async function deleteRegistryCredential(tenant_id: string, _id: string): Promise<void> {
  const { deletedCount } = await RegistryCredential.deleteOne({ _id, tenant_id })
  if (!deletedCount) throw new NotFound('registry credential')
}

/** The login for an instance's image. Null for what the platform itself runs for a tenant, whose images are its own. */
export async function registryLoginOf({
  tenant_id,
  image,
  managed_by,
}: Pick<InstanceDocument, 'tenant_id' | 'image' | 'managed_by'>): Promise<RegistryLogin | null> {
  if (managed_by !== null) return null
  const credential = await RegistryCredential.findOne({ tenant_id, registry: registryOf(image) }).lean()
  if (!credential) return null
  const { _id, username, password_sealed, version } = credential
  const password = await unsealSecret<string>(password_sealed, contextOf(_id))
  return { username, password, version: `${_id}.${version}` }
}

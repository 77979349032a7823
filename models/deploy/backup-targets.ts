import mongoose, { Schema } from 'mongoose'
import type { BlobStore } from '../../lib/blob-store.ts'
import { newId } from '../../lib/ids.ts'
import { InvalidInput, NotFound, Problem } from '../../lib/problem.ts'
import {
  type BucketCheck,
  type BucketPlace,
  checkBucket,
  openTenantBucket,
} from '../../lib/tenant-buckets.ts'
import { storesOfTargets } from '../blobs.ts'
import { transaction } from '../database.ts'
import { tenantResource } from '../identity/tenants.ts'
import { outbound, urlFaults } from '../outbound.ts'
import { lockParent } from '../parents.ts'
import { documentOptions, idField, named } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'

// A tenant's bucket for backups. Its place never changes, because there are backups in it.

export interface BackupTargetDocument extends Omit<BucketPlace, 'secret_access_key'> {
  _id: string
  tenant_id: string
  /** Unique in the tenant. */
  name: string
  /** Before the names of all objects: empty, or ends with a slash. */
  prefix: string
  secret_sealed: string
  checked_at: Date
  /** What the last check found; null: the bucket can be used. */
  fault: BucketCheck | null
  /** Counts the locks taken on it, as a parent's. */
  turns: number
  created_at: Date
  updated_at: Date
}

const schema = new Schema<BackupTargetDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    name: { type: String, required: true },
    endpoint: { type: String, required: true },
    region: { type: String, required: true },
    bucket: { type: String, required: true },
    prefix: { type: String, default: '' },
    path_style: { type: Boolean, required: true },
    access_key_id: { type: String, required: true },
    secret_sealed: { type: String, required: true },
    checked_at: { type: Date, required: true },
    fault: { type: Schema.Types.Mixed, default: null },
    turns: { type: Number, default: 0 },
  },
  { ...documentOptions, collection: 'backup_targets' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, name: 1 }, { unique: true })
export const BackupTarget = mongoose.model<BackupTargetDocument>('BackupTarget', schema)
sealedField(BackupTarget, 'secret_sealed')

export const targetsAtMost = 20

storesOfTargets(async (id) => {
  const target = await BackupTarget.findById(id).setOptions(everyTenant).lean()
  return target && open(target)
})

const open = async ({ secret_sealed, ...target }: BackupTargetDocument): Promise<BlobStore> =>
  openTenantBucket(
    { ...target, secret_access_key: await unsealSecret<string>(secret_sealed, target._id) },
    outbound(),
  )

/** The bucket of a target cannot be used. */
class TargetUnusable extends Problem {
  constructor({ step, reason, message }: BucketCheck) {
    super(422, 'backup_target_unusable', 'The bucket cannot be used', `${doing[step]} failed: ${message}`, {
      extensions: { step, reason },
    })
  }
}
const doing = {
  write: 'Writing an object',
  read: 'Reading the object',
  delete: 'Deleting the object',
}

/** Somebody waits for the answer. */
const checkedWithinMs = 10_000

async function check({ prefix, ...place }: BucketPlace & { prefix: string }) {
  const fault = await checkBucket(
    await openTenantBucket(place, outbound(), checkedWithinMs),
    `${prefix}keelson-check-${newId()}`,
  )
  return { fault, checked_at: new Date() }
}

export type NewTarget = BucketPlace & Pick<BackupTargetDocument, 'name' | 'prefix'>

/** Writes, reads and deletes an object first. Throws InvalidInput, TargetUnusable, NameTaken, `too_many_backup_targets`. */
export async function createTarget(tenant_id: string, fields: NewTarget): Promise<BackupTargetDocument> {
  const urlFault = outbound().faultOf(fields.endpoint)
  if (urlFault)
    throw new InvalidInput(422, [{ pointer: '/endpoint', message: `${urlFault}: ${urlFaults[urlFault]}` }])
  const checked = await check(fields)
  if (checked.fault) throw new TargetUnusable(checked.fault)
  const { secret_access_key, ...shown } = fields
  const _id = newId()
  const secret_sealed = await sealSecret(secret_access_key, _id)
  return named('backup target', fields.name, () =>
    transaction(async () => {
      await lockParent(tenantResource, tenant_id, tenant_id)
      if ((await BackupTarget.countDocuments({ tenant_id })) >= targetsAtMost)
        throw new Problem(
          409,
          'too_many_backup_targets',
          'Too many backup targets',
          `The tenant has ${targetsAtMost} backup targets, and may have no more`,
        )
      const made = new BackupTarget({ ...shown, ...checked, _id, tenant_id, secret_sealed })
      return (await made.save()).toObject()
    }, tenant_id),
  )
}

export interface TargetChanges {
  name?: string | undefined
  prefix?: string | undefined
  access_key_id?: string | undefined
  secret_access_key?: string | undefined
}

/** What concerns the bucket is checked before it is kept. Throws NotFound, TargetUnusable, NameTaken. */
export async function changeTarget(
  target: BackupTargetDocument,
  { name, ...changes }: TargetChanges,
): Promise<BackupTargetDocument> {
  const { _id, tenant_id, secret_sealed } = target
  const { secret_access_key = await unsealSecret<string>(secret_sealed, _id), ...rest } = changes
  const given = Object.fromEntries(Object.entries(rest).filter(([, value]) => value !== undefined))
  const concernsBucket = Object.values(changes).some((value) => value !== undefined)
  const checked = concernsBucket ? await check({ ...target, ...given, secret_access_key }) : null
  if (checked?.fault) throw new TargetUnusable(checked.fault)
  const set = {
    ...given,
    ...checked,
    ...(name === undefined ? {} : { name }),
    ...(changes.secret_access_key === undefined
      ? {}
      : { secret_sealed: await sealSecret(secret_access_key, _id) }),
  }
  return named('backup target', name ?? '', () => changed({ _id, tenant_id }, set))
}

/** Writes, reads and deletes an object, and keeps what came of it. Throws NotFound. */
export async function checkTarget(target: BackupTargetDocument): Promise<BackupTargetDocument> {
  const { _id, tenant_id, secret_sealed } = target
  const secret_access_key = await unsealSecret<string>(secret_sealed, _id)
  return changed({ _id, tenant_id }, await check({ ...target, secret_access_key }))
}

async function changed(
  of: Pick<BackupTargetDocument, '_id' | 'tenant_id'>,
  set: Partial<BackupTargetDocument>,
): Promise<BackupTargetDocument> {
  const after = await BackupTarget.findOneAndUpdate(of, { $set: set }, { returnDocument: 'after' }).lean()
  if (!after) throw new NotFound('backup target')
  return after
}

/** Throws NotFound. */
export async function targetOf(
  { tenant_id }: { tenant_id: string },
  _id: string,
): Promise<BackupTargetDocument> {
  const target = await BackupTarget.findOne({ _id, tenant_id }).lean()
  if (!target) throw new NotFound('backup target')
  return target
}

/**
 * The target that something new will use, locked until the transaction ends: no deletion comes between. Throws
 * InvalidInput.
 */
export async function holdTarget(tenant_id: string, _id: string): Promise<BackupTargetDocument> {
  const its = { _id, tenant_id }
  const held = await BackupTarget.findOneAndUpdate(its, { $inc: { turns: 1 } }, { timestamps: false }).lean()
  if (!held) throw new InvalidInput(422, [{ pointer: '/target_id', message: 'no such backup target' }])
  return held
}

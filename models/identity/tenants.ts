import { randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { NotFound, Problem, QuotaExceeded, StateConflict } from '../../lib/problem.ts'
import { accepts, begin, type By } from '../acceptance.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { type ParentDocument, parentFields } from '../parents.ts'
import {
  defineResource,
  documentOptions,
  idField,
  platformFields,
  type ResourceDocument,
} from '../resources.ts'
import { type StateOf, states } from '../states.ts'
import { ApiClient } from './api-clients.ts'
import { endTenantDeployCredentials } from './deploy-credentials.ts'
import { forEachLimit, limitedSums, type LimitName, type Limits, type SomeLimits } from './limits.ts'
import { closeTenantSessions } from './sessions.ts'
import { emailTaken, hashPassword, User, type UserDocument } from './users.ts'

/** Only an active tenant accepts logins. A deletion cannot be reverted, only retried. */
export const tenantStates = states(
  { active: { delete: 'deleting' }, error: { delete: 'deleting' } },
  { final: ['delete'] },
)

/**
 * A tenant as a resource of the operation engine. Its `tenant_id` is the tenant that keeps the operations on it:
 * itself, and from its deletion on the tenant of the operator who started that, and who reads its outcome there.
 */
export interface TenantDocument extends ResourceDocument<StateOf<typeof tenantStates>>, ParentDocument {
  limits: Limits
  limits_updated_at: Date
  usage: Size
}

const whole = (value: number) => ({ type: Number, default: value, min: 0 })

const schema = new Schema<TenantDocument>(
  {
    _id: idField,
    ...platformFields(tenantStates),
    tenant_id: {
      type: String,
      default(this: TenantDocument) {
        return this._id
      },
    },
    name: { type: String, required: true },
    status: { type: String, default: 'active', enum: tenantStates.all },
    limits: forEachLimit((_, { usual }) => whole(usual)),
    limits_updated_at: { type: Date, default: Date.now },
    usage: { cpu_milli: whole(0), memory_mib: whole(0), disk_gib: whole(0) },
    ...parentFields,
  },
  { ...documentOptions, collection: 'tenants' },
)
export const Tenant = mongoose.model<TenantDocument>('Tenant', schema)
export const tenantResource = defineResource('tenant', Tenant, tenantStates, { of_platform: true })

/** Throws as `begin`, and `tenant_has_operators`. */
export const acceptTenantDeletion = (by: By, id: string): Promise<Accepted<TenantDocument>> =>
  transaction(async () => {
    await handOver(id, by.tenant_id)
    return begin(by, tenantResource, id, 'delete')
  }, id)

/**
 * Prepares a tenant for its deletion, in the transaction that accepts it: the operator's tenant keeps the operations on
 * it from now on. Throws if the tenant has operators: they would lock themselves out, and the records of their actions
 * would be deleted.
 */
async function handOver(id: string, operatorTenantId: string): Promise<void> {
  const operators = await User.countDocuments({ tenant_id: id, roles: 'operator' })
  if (operators) {
    throw new Problem(
      409,
      'tenant_has_operators',
      'The tenant has operators',
      'Platform operators belong to this tenant',
    )
  }
  await Tenant.updateOne({ _id: id }, { $set: { tenant_id: operatorTenantId } })
  // From the next request on, sessions, logins and tokens are refused.
  await User.updateMany({ tenant_id: id }, { $set: { status: 'disabled' } })
  await closeTenantSessions(id)
  await endTenantDeployCredentials(id)
  await ApiClient.updateMany({ tenant_id: id }, { $set: { expires_at: new Date() } })
}

accepts(tenantResource, { verbs: { delete: acceptTenantDeletion } })

export interface NewOwner {
  email: string
  name?: string | undefined
  /** Default: a generated password. */
  password?: string | undefined
  /** Roles in addition to `owner`. */
  roles?: string[]
}

/**
 * Makes a tenant and its first owner in one transaction. `password` is the generated one, null if one was given. Throws
 * a 409 if the e-mail address is taken.
 */
export async function createTenant(
  fields: { name: string; limits?: SomeLimits | undefined },
  owner: NewOwner,
): Promise<{ tenant: TenantDocument; owner: UserDocument; password: string | null }> {
  const made = owner.password === undefined ? randomBytes(15).toString('base64url') : null
  const password_hash = await hashPassword(owner.password ?? made ?? '')
  const email = owner.email.toLowerCase()
  try {
    return await transaction(async () => {
      const tenant = await new Tenant({ name: fields.name, limits: fields.limits ?? {} }).save()
      const roles = ['owner', ...(owner.roles ?? [])]
      const user = new User({ tenant_id: tenant._id, email, name: owner.name ?? '', password_hash, roles })
      await user.save()
      return { tenant: tenant.toObject(), owner: user.toObject(), password: made }
    })
  } catch (error) {
    if (!isDuplicateKey(error)) throw error
    throw emailTaken()
  }
}

/** Throws NotFound. */
export async function tenantOf(id: string): Promise<TenantDocument> {
  return there(await Tenant.findById(id).lean())
}

/** A limit of a tenant. One that is newer than the tenant has its default. */
export const limitOf = ({ limits }: { limits: SomeLimits }, name: LimitName): number =>
  limits[name] ?? usualLimits[name]

const usualLimits: Limits = forEachLimit((_, { usual }) => usual)

/** Throws NotFound. */
export const renameTenant = (id: string, name: string): Promise<TenantDocument> => change(id, { name })

/**
 * Changes some of a tenant's limits. A limit below the present usage releases nothing; it only refuses more. Throws
 * NotFound.
 */
export async function setLimits(tenantId: string, limits: SomeLimits): Promise<TenantDocument> {
  const changes = Object.entries(limits).map(([name, value]) => [`limits.${name}`, value] as const)
  return change(tenantId, { ...Object.fromEntries(changes), limits_updated_at: new Date() })
}

const change = async (id: string, set: object): Promise<TenantDocument> =>
  there(await Tenant.findByIdAndUpdate(id, { $set: set }, { returnDocument: 'after' }).lean())

function there(tenant: TenantDocument | null): TenantDocument {
  if (!tenant) throw new NotFound('tenant')
  return tenant
}

/**
 * What an instance or a disk takes of a tenant's quota and of a host's capacity. Whole thousandths of a core, MiB and
 * GiB keep the sums exact.
 */
export interface Size {
  cpu_milli: number
  memory_mib: number
  disk_gib: number
}
export const sizeOf = (spec: { cpu_cores: number; memory_mib: number }): Size => ({
  cpu_milli: Math.round(spec.cpu_cores * 1000),
  memory_mib: spec.memory_mib,
  disk_gib: 0,
})
export const diskSize = (disk_gib: number): Size => ({ cpu_milli: 0, memory_mib: 0, disk_gib })

/**
 * Takes quota from a tenant in one conditional update, or throws QuotaExceeded. Negative sizes release quota and always
 * succeed. A new reservation needs an active tenant.
 */
export async function takeQuota(tenantId: string, size: Size, { isNew = false } = {}): Promise<void> {
  const room = limitedSums.map(({ name, sum, units }) =>
    fits(size[sum], `$usage.${sum}`, { $multiply: [`$limits.${name}`, units] }),
  )
  const more = limitedSums.map(({ sum }) => [`usage.${sum}`, size[sum]] as const)
  const taken = await Tenant.updateOne(
    { _id: tenantId, $expr: { $and: room }, ...(isNew ? { status: 'active' } : {}) },
    { $inc: Object.fromEntries(more) },
  )
  if (taken.matchedCount) return
  const { limits, usage, status } = await tenantOf(tenantId)
  if (isNew && status !== 'active') throw new StateConflict('take quota', status)
  const isShort = ({ name, sum, units }: (typeof limitedSums)[number]): boolean =>
    size[sum] > 0 && usage[sum] + size[sum] > limits[name] * units
  const short = limitedSums.find(isShort)
  // The missing quota was released between the two queries.
  if (!short) return takeQuota(tenantId, size, { isNew })
  const { name, sum, units } = short
  throw new QuotaExceeded(name, limits[name], usage[sum] / units, size[sum] / units)
}

/**
 * Throws QuotaExceeded if a tenant with `used` resources may not have one more, or as much as is `asked`. Call in the
 * transaction that adds it, under a lock (`lockParent`). Counted resources need no release.
 */
export async function needQuota(tenantId: string, name: LimitName, used: number, asked = 1): Promise<void> {
  const allowed = limitOf(await tenantOf(tenantId), name)
  if (used >= allowed || used + asked > allowed) throw new QuotaExceeded(name, allowed, used, asked)
}

/** An aggregation expression: whether `asked` more fits into `allowed`. Releasing always fits. */
export const fits = (asked: number, used: string, allowed: unknown): unknown =>
  asked <= 0 ? true : { $lte: [{ $add: [used, asked] }, allowed] }

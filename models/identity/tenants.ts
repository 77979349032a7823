import { randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { NotFound, Problem, QuotaExceeded, StateConflict } from '../../lib/problem.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import {
  defineResource,
  documentOptions,
  idField,
  platformFields,
  type ResourceDocument,
} from '../resources.ts'
import { type StateOf, states } from '../states.ts'
import { ApiClient } from './api-clients.ts'
import { hashPassword, User, type UserDocument } from './users.ts'

/** What a tenant may hold at most, and what it holds. */
export interface Limits {
  max_cpu_cores: number
  max_ram_gib: number
  max_storage_gib: number
  max_llm_tokens_month: number
  max_vpcs: number
  max_vms_per_vpc: number
}

export type SomeLimits = { [Name in keyof Limits]?: number | undefined }

/** Nobody gets into a tenant that is not active. There is no way back from a deletion, only another try. */
export const tenantStates = states(
  { active: { delete: 'deleting' }, error: { delete: 'deleting' } },
  { final: ['delete'] },
)

/**
 * A resource of the operation engine like others. Its `tenant_id` says in which tenant the operations on it are
 * kept: in itself, and from its deletion on in that of the operator who began it, who reads there how it ended.
 */
export interface TenantDocument extends ResourceDocument<StateOf<typeof tenantStates>> {
  limits: Limits
  limits_updated_at: Date
  usage: Size
  /** Counts creations of VPCs, so that two at once meet in it. */
  vpc_turns: number
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
    limits: {
      max_cpu_cores: whole(64),
      max_ram_gib: whole(256),
      max_storage_gib: whole(2048),
      max_llm_tokens_month: whole(10_000_000),
      max_vpcs: whole(10),
      max_vms_per_vpc: whole(250),
    },
    limits_updated_at: { type: Date, default: Date.now },
    usage: { cpu_milli: whole(0), memory_mib: whole(0), disk_gib: whole(0) },
    vpc_turns: whole(0),
  },
  { ...documentOptions, collection: 'tenants' },
)
export const Tenant = mongoose.model<TenantDocument>('Tenant', schema)
export const tenantResource = defineResource('tenant', Tenant, tenantStates, { of_platform: true })

/**
 * Readies a tenant for the acceptance of its deletion, in the same transaction: what is done to it from now on
 * is kept with the operator. Throws where operators belong to it: they would lock out themselves, and
 * the records of what they did would go with them.
 */
export async function handOver(id: string, operatorTenantId: string): Promise<void> {
  const operators = await User.countDocuments({ tenant_id: id, roles: 'operator' })
  if (operators) {
    throw new Problem(
      409,
      'tenant_has_operators',
      'The tenant has operators',
      'Operators of the platform belong to it',
    )
  }
  await Tenant.updateOne({ _id: id }, { $set: { tenant_id: operatorTenantId } })
  // From the next request on nobody gets in, by a session, a new login or a token.
  await User.updateMany({ tenant_id: id }, { $set: { status: 'disabled' } })
  await ApiClient.updateMany({ tenant_id: id }, { $set: { expires_at: new Date() } })
}

export interface NewOwner {
  email: string
  name?: string | undefined
  /** Without one, one is made. */
  password?: string | undefined
  /** Beside `owner`. */
  roles?: string[]
}

/**
 * Makes a tenant and its first owner, both or neither. `password` is the one that was made, null where one was
 * given. Throws a 409 where the address is somebody's already.
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
    throw new Problem(409, 'email_taken', 'The address is taken', 'There is a user with this address already')
  }
}

/**
 * Changes some of a tenant's limits. One that is set below what is in use takes nothing away: what is held stays
 * held, and only more is refused. Throws NotFound.
 */
export async function setLimits(tenantId: string, limits: SomeLimits): Promise<TenantDocument> {
  const changes = Object.entries(limits).map(([name, value]) => [`limits.${name}`, value] as const)
  const tenant = await Tenant.findByIdAndUpdate(
    tenantId,
    { $set: { ...Object.fromEntries(changes), limits_updated_at: new Date() } },
    { returnDocument: 'after' },
  ).lean()
  if (!tenant) throw new NotFound('tenant')
  return tenant
}

/**
 * What an instance or a disk takes, of a tenant's quota and of a host's capacity: whole thousandths of a core, MiB and
 * GiB, so that sums are exact.
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

/** The limit on each sum, and how many of the sum's unit make one of the limit's. */
const limitsOfSums = {
  cpu_milli: { limit: 'max_cpu_cores', units: 1000 },
  memory_mib: { limit: 'max_ram_gib', units: 1024 },
  disk_gib: { limit: 'max_storage_gib', units: 1 },
} as const
const sums = Object.entries(limitsOfSums) as [keyof Size, (typeof limitsOfSums)[keyof Size]][]

/**
 * Takes a part of the tenant's quota, or throws QuotaExceeded: check and change are one conditional update.
 * Negative sizes give back, and always fit. What is new goes into an active tenant only.
 */
export async function takeQuota(tenantId: string, size: Size, { isNew = false } = {}): Promise<void> {
  const room = sums.map(([sum, { limit, units }]) =>
    fits(size[sum], `$usage.${sum}`, { $multiply: [`$limits.${limit}`, units] }),
  )
  const more = sums.map(([sum]) => [`usage.${sum}`, size[sum]] as const)
  const taken = await Tenant.updateOne(
    { _id: tenantId, $expr: { $and: room }, ...(isNew ? { status: 'active' } : {}) },
    { $inc: Object.fromEntries(more) },
  )
  if (taken.matchedCount) return
  const tenant = await Tenant.findById(tenantId).lean()
  if (!tenant) throw new NotFound('tenant')
  const { limits, usage, status } = tenant
  if (isNew && status !== 'active') throw new StateConflict('take quota', status)
  const short = sums.find(([sum, { limit, units }]) => usage[sum] + size[sum] > limits[limit] * units)
  const [sum, { limit, units }] = short ?? ['memory_mib', limitsOfSums.memory_mib]
  throw new QuotaExceeded(limit, limits[limit], usage[sum] / units, size[sum] / units)
}

/** An aggregation expression: whether `asked` more goes into `allowed`. Giving back always does. */
export const fits = (asked: number, used: string, allowed: unknown): unknown =>
  asked <= 0 ? true : { $lte: [{ $add: [{ $ifNull: [used, 0] }, asked] }, allowed] }

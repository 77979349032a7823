import mongoose, { Schema } from 'mongoose'
import { NotFound, QuotaExceeded } from '../../lib/problem.ts'
import { documentOptions, idField } from '../resources.ts'

/** What a tenant may hold at most, and what it holds. */
export interface Limits {
  max_cpu_cores: number
  max_ram_gib: number
  max_storage_gib: number
  max_llm_tokens_month: number
  max_vpcs: number
  max_vms_per_vpc: number
}

export interface TenantDocument {
  _id: string
  name: string
  limits: Limits
  /** In whole thousandths of a core and MiB, so that sums are exact. */
  usage: { cpu_milli: number; memory_mib: number }
  created_at: Date
  updated_at: Date
}

const whole = (value: number) => ({ type: Number, default: value, min: 0 })

const schema = new Schema<TenantDocument>(
  {
    _id: idField,
    name: { type: String, required: true },
    limits: {
      max_cpu_cores: whole(64),
      max_ram_gib: whole(256),
      max_storage_gib: whole(2048),
      max_llm_tokens_month: whole(10_000_000),
      max_vpcs: whole(10),
      max_vms_per_vpc: whole(250),
    },
    usage: { cpu_milli: whole(0), memory_mib: whole(0) },
  },
  { ...documentOptions, collection: 'tenants' },
)
export const Tenant = mongoose.model<TenantDocument>('Tenant', schema)

/** What an instance takes, of a tenant's quota and of a host's capacity. */
export interface Size {
  cpu_milli: number
  memory_mib: number
}
export const sizeOf = (spec: { cpu_cores: number; memory_mib: number }): Size => ({
  cpu_milli: Math.round(spec.cpu_cores * 1000),
  memory_mib: spec.memory_mib,
})

/**
 * Takes a part of the tenant's quota, or throws QuotaExceeded: check and change are one conditional update.
 * Negative sizes give back, and always fit.
 */
export async function takeQuota(tenantId: string, size: Size): Promise<void> {
  const room = {
    $expr: {
      $and: [
        fits(size.cpu_milli, '$usage.cpu_milli', { $multiply: ['$limits.max_cpu_cores', 1000] }),
        fits(size.memory_mib, '$usage.memory_mib', { $multiply: ['$limits.max_ram_gib', 1024] }),
      ],
    },
  }
  const taken = await Tenant.updateOne(
    { _id: tenantId, ...room },
    { $inc: { 'usage.cpu_milli': size.cpu_milli, 'usage.memory_mib': size.memory_mib } },
  )
  if (taken.matchedCount) return
  const tenant = await Tenant.findById(tenantId).lean()
  if (!tenant) throw new NotFound('tenant')
  const { limits, usage } = tenant
  if (usage.cpu_milli + size.cpu_milli > limits.max_cpu_cores * 1000) {
    throw new QuotaExceeded(
      'max_cpu_cores',
      limits.max_cpu_cores,
      usage.cpu_milli / 1000,
      size.cpu_milli / 1000,
    )
  }
  throw new QuotaExceeded('max_ram_gib', limits.max_ram_gib, usage.memory_mib / 1024, size.memory_mib / 1024)
}

/** An aggregation expression: whether `asked` more goes into `allowed`. Giving back always does. */
export const fits = (asked: number, used: string, allowed: unknown): unknown =>
  asked <= 0 ? true : { $lte: [{ $add: [used, asked] }, allowed] }

import { z } from 'zod'
import { NotFound } from '../../lib/problem.ts'
import { Tenant, type TenantDocument } from '../../models/identity/tenants.ts'
import { Id, Timestamp, time } from '../fields.ts'
import { operation } from '../operation.ts'

const limit = z.int().min(0)

/** What may be limited, as operators set it. */
export const limitFields = {
  max_cpu_cores: limit,
  max_llm_tokens_month: limit,
  max_ram_gib: limit,
  max_storage_gib: limit,
  max_vms_per_vpc: limit,
  max_vpcs: limit,
}

export const LimitsView = z
  .strictObject({ ...limitFields, tenant_id: Id, updated_at: Timestamp })
  .meta({ id: 'Limits' })

/** The limits by name, and nothing that the record holds beside them. */
export const limitsOf = ({ limits }: TenantDocument) => ({
  max_cpu_cores: limits.max_cpu_cores,
  max_llm_tokens_month: limits.max_llm_tokens_month,
  max_ram_gib: limits.max_ram_gib,
  max_storage_gib: limits.max_storage_gib,
  max_vms_per_vpc: limits.max_vms_per_vpc,
  max_vpcs: limits.max_vpcs,
})

export const toLimitsView = (tenant: TenantDocument): z.output<typeof LimitsView> => ({
  ...limitsOf(tenant),
  tenant_id: tenant._id,
  // A tenant made before limits had a time of their own has had them since it was made.
  updated_at: time(tenant.limits_updated_at ?? tenant.created_at),
})

export const limits = [
  operation({
    method: 'GET',
    path: '/api/v1/limits',
    permission: 'limits:read',
    summary: 'What the tenant may hold at most',
    responses: { 200: LimitsView },
    handle: async ({ caller }) => {
      const tenant = await Tenant.findById(caller.tenant_id).lean()
      if (!tenant) throw new NotFound('tenant')
      return toLimitsView(tenant)
    },
  }),
]

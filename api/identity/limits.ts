import { z } from 'zod'
import { forEachLimit } from '../../models/identity/limits.ts'
import { limitOf, type TenantDocument, tenantOf } from '../../models/identity/tenants.ts'
import { Id, Timestamp, time } from '../fields.ts'
import { operation } from '../operation.ts'

/** The limits that operators can set. */
export const limitFields = forEachLimit(() => z.int().min(0))

export const LimitsView = z
  .strictObject({ ...limitFields, tenant_id: Id, updated_at: Timestamp })
  .meta({ id: 'Limits' })

/** The limits by name, without the record's other fields. */
export const limitsOf = (tenant: TenantDocument) => forEachLimit((name) => limitOf(tenant, name))

export const toLimitsView = (tenant: TenantDocument): z.output<typeof LimitsView> => ({
  ...limitsOf(tenant),
  tenant_id: tenant._id,
  updated_at: time(tenant.limits_updated_at),
})

export const limits = [
  operation({
    method: 'GET',
    path: '/api/v1/limits',
    permission: 'limits:read',
    summary: 'Get the tenant’s limits',
    responses: { 200: LimitsView },
    handle: async ({ caller }) => toLimitsView(await tenantOf(caller.tenant_id)),
  }),
]

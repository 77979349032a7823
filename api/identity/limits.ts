import { z } from 'zod'
import { forEachLimit } from '../../models/identity/limits.ts'
import { limitUseOf } from '../../models/limit-use.ts'
import { limitOf, type TenantDocument, tenantOf } from '../../models/identity/tenants.ts'
import { Id, Timestamp, time } from '../fields.ts'
import { operation } from '../operation.ts'

/** The limits that operators can set. */
export const limitFields = forEachLimit(() => z.int().min(0))

const LimitUse = z
  .strictObject({
    used: z.number().describe('The amount used by what exists'),
    reserved: z.number().describe('The amount reserved by model calls in progress, in addition to `used`'),
  })
  .meta({ id: 'LimitUse' })
export const LimitsView = z
  .strictObject({
    ...limitFields,
    usage: z
      .strictObject(forEachLimit(() => LimitUse.nullable()))
      .describe(
        'What counts against each limit; null: the limit applies to each of several resources, such as VPCs',
      ),
    tenant_id: Id,
    updated_at: Timestamp,
  })
  .meta({ id: 'Limits' })

/** The limits by name, without the record's other fields. */
export const limitsOf = (tenant: TenantDocument) => forEachLimit((name) => limitOf(tenant, name))

export const toLimitsView = async (tenant: TenantDocument): Promise<z.output<typeof LimitsView>> => ({
  ...limitsOf(tenant),
  usage: await limitUseOf(tenant),
  tenant_id: tenant._id,
  updated_at: time(tenant.limits_updated_at),
})

export const limits = [
  operation({
    method: 'GET',
    path: '/api/v1/limits',
    permission: 'limits:read',
    summary: 'Get the tenant’s limits, and what counts against each',
    responses: { 200: LimitsView },
    handle: async ({ caller }) => toLimitsView(await tenantOf(caller.tenant_id)),
  }),
]

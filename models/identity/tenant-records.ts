import mongoose from 'mongoose'
import { forgetCounts } from '../counters.ts'
import { Operation } from '../operations.ts'
import { AuditEvent } from './audit.ts'
import { forgetGrants } from './grants.ts'
import { Tenant, tenantResource } from './tenants.ts'

// Who did what is kept beyond the tenant, and what was done to tenants is the operators' own record.
const kept = new Set<string>([AuditEvent.modelName, Tenant.modelName])
const alsoKept: Record<string, object> = {
  [Operation.modelName]: { resource_kind: { $ne: tenantResource.kind } },
}

/** Every collection with records of tenants, and which of a tenant's are removed with it. */
export const tenantRecords = (tenantId: string) =>
  Object.values(mongoose.models)
    .filter(({ modelName, schema }) => schema.path('tenant_id') && !kept.has(modelName))
    .map(({ modelName, collection }) => ({
      collection,
      filter: { tenant_id: tenantId, ...alsoKept[modelName] },
    }))

/** Removes whatever has the tenant's id, of any model. May be repeated. */
export async function removeTenantRecords(tenantId: string): Promise<void> {
  for (const { collection, filter } of tenantRecords(tenantId)) await collection.deleteMany(filter)
  await forgetGrants(tenantId)
  await forgetCounts(tenantId)
}

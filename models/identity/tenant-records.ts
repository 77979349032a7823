import mongoose from 'mongoose'
import { dropPieces } from '../compute/log-archive.ts'
import { forgetCounts } from '../counters.ts'
import { Operation } from '../operations.ts'
import { allResources, type Resource } from '../resources.ts'
import { tenantField } from '../tenant-scope.ts'
import { AuditEvent } from './audit.ts'
import { forgetGrants } from './grants.ts'

const ofPlatform = (): Resource[] => allResources().filter(({ of_platform }) => of_platform)
// Who did what is kept beyond the tenant, and what was done to the platform is the operators' own record.
const isKept = (modelName: string): boolean =>
  modelName === AuditEvent.modelName || ofPlatform().some(({ model }) => model.modelName === modelName)
const alsoKept = (modelName: string): object =>
  modelName === Operation.modelName ? { resource_kind: { $nin: ofPlatform().map(({ kind }) => kind) } } : {}

/** Every collection with records of tenants, and which of a tenant's are removed with it. */
export const tenantRecords = (tenantId: string) =>
  Object.values(mongoose.models)
    .filter(({ modelName }) => !isKept(modelName))
    .flatMap(({ modelName, collection, schema }) => {
      const field = tenantField(schema)
      return field ? [{ collection, filter: { [field]: tenantId, ...alsoKept(modelName) } }] : []
    })

/** Removes whatever has the tenant's id, of any model. May be repeated. */
export async function removeTenantRecords(tenantId: string): Promise<void> {
  while (await dropPieces({ tenant_id: tenantId })) {} // with what they refer to
  for (const { collection, filter } of tenantRecords(tenantId)) await collection.deleteMany(filter)
  await forgetGrants(tenantId)
  await forgetCounts(tenantId)
}

import mongoose from 'mongoose'
import { removeRuns } from '../ai/run-removal.ts'
import { dropPieces } from '../compute/log-archive.ts'
import { forgetCounts } from '../counters.ts'
import { Operation } from '../operations.ts'
import { allResources, type Resource } from '../resources.ts'
import { tenantField } from '../tenant-scope.ts'
import { AuditEvent } from './audit.ts'
import { forgetGrants } from './grants.ts'

const ofPlatform = (): Resource[] => allResources().filter(({ of_platform }) => of_platform)
// Audit events outlive the tenant, and records of the platform's own resources belong to the operators.
const isKept = (modelName: string): boolean =>
  modelName === AuditEvent.modelName || ofPlatform().some(({ model }) => model.modelName === modelName)
const alsoKept = (modelName: string): object =>
  modelName === Operation.modelName ? { resource_kind: { $nin: ofPlatform().map(({ kind }) => kind) } } : {}

/** Every collection with tenants' records, and the filter for those to remove with this tenant. */
export const tenantRecords = (tenantId: string) =>
  Object.values(mongoose.models)
    .filter(({ modelName }) => !isKept(modelName))
    .flatMap(({ modelName, collection, schema }) => {
      const field = tenantField(schema)
      return field ? [{ collection, filter: { [field]: tenantId, ...alsoKept(modelName) } }] : []
    })

/** Removes all records with the tenant's id, of every model. Idempotent. */
export async function removeTenantRecords(tenantId: string): Promise<void> {
  // Together with their blobs.
  while (await dropPieces({ tenant_id: tenantId })) {}
  while (await removeRuns({ tenant_id: tenantId })) {}
  for (const { collection, filter } of tenantRecords(tenantId)) await collection.deleteMany(filter)
  await forgetGrants(tenantId)
  await forgetCounts(tenantId)
}

import { transaction } from './database.ts'
import { Operation } from './operations.ts'
import { everyTenant } from './tenant-scope.ts'

const dayMs = 86_400_000
const atOnce = 100

/**
 * Removes up to 100 operations that were accepted more than `days` ago and have ended, oldest first. Returns how many.
 * One by one, since they are counted by tenant: no TTL index could do it.
 */
export async function removeOldOperations(days: number): Promise<number> {
  const old = await Operation.find(
    { created_at: { $lt: new Date(Date.now() - days * dayMs) }, open: { $exists: false } },
    { tenant_id: 1 },
  )
    .setOptions(everyTenant)
    .sort({ created_at: 1 })
    .limit(atOnce)
    .lean()
  for (const { _id, tenant_id } of old) {
    await transaction(async () => {
      await Operation.deleteOne({ _id, tenant_id })
    }, tenant_id)
  }
  return old.length
}

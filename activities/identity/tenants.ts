import '../../models/index.ts'
import { removeTenantRecords } from '../../models/identity/tenant-records.ts'
import { allResources } from '../../models/resources.ts'

export const makeTenantActivities = () => ({
  /** Counts a tenant's resources, and lists some to delete next. `kind` is null if only `exceptKinds` are left. */
  async resourcesLeft(
    tenantId: string,
    exceptKinds: string[],
    limit: number,
  ): Promise<{ kind: string | null; ids: string[]; total: number }> {
    const counted = await Promise.all(
      inOrderOfDeletion().map(async ({ kind, model }) => ({
        kind,
        model,
        count: await model.countDocuments({ tenant_id: tenantId }),
      })),
    )
    const total = counted.reduce((sum, { count }) => sum + count, 0)
    const next = counted.find(({ kind, count }) => count > 0 && !exceptKinds.includes(kind))
    if (!next) return { kind: null, ids: [], total }
    const some = await next.model.find({ tenant_id: tenantId }, { _id: 1 }).limit(limit).lean()
    return { kind: next.kind, ids: some.map(({ _id }) => _id), total }
  },

  removeTenantRecords,
})

export type TenantActivities = ReturnType<typeof makeTenantActivities>

/**
 * A kind that blocks the deletion of another (`keptBy`) comes before it. The blocking kind's file imports the blocked
 * one, which is therefore defined first. A kind without `delete` goes with its parent.
 */
export const inOrderOfDeletion = () =>
  allResources()
    .filter(({ of_platform, states }) => !of_platform && states.verbs.includes('delete'))
    .toReversed()

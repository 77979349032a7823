import { Context } from '@temporalio/activity'
import { Problem } from '../../lib/problem.ts'
import '../../models/index.ts'
import { removeTenantRecords } from '../../models/identity/tenant-records.ts'
import { acceptVerb } from '../../models/operations.ts'
import { allResources, type Resource } from '../../models/resources.ts'

const lookEveryMs = 500

export const makeTenantActivities = () => ({
  /**
   * Deletes every resource of the tenant by an operation of its own, and returns once none is left. One that
   * cannot be deleted yet (another needs it, its host is away) is tried again.
   */
  async deleteResources(tenantId: string): Promise<void> {
    const resources = allResources().filter(({ of_platform }) => !of_platform)
    for (;;) {
      const left = await Promise.all(resources.map((resource) => beginDeletions(resource, tenantId)))
      if (left.every((count) => count === 0)) return
      await Context.current().sleep(lookEveryMs)
    }
  },

  removeTenantRecords,
})

export type TenantActivities = ReturnType<typeof makeTenantActivities>

/** Accepts a deletion for each that is not being deleted. Returns how many there still are. */
async function beginDeletions(resource: Resource, tenantId: string): Promise<number> {
  const deleting = resource.states.during('delete')
  const left = await resource.model.find({ tenant_id: tenantId }, { status: 1 }).lean()
  for (const { _id: id, status } of left) {
    if (status === deleting) continue
    try {
      await acceptVerb({ resource, tenantId, id, verb: 'delete', requestedBy: null })
    } catch (error) {
      // It is gone, or not to be deleted at this moment: the next look says which.
      if (!(error instanceof Problem)) throw error
    }
  }
  return left.length
}

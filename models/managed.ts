import { Problem } from '../lib/problem.ts'

// A deploy server makes resources for itself: machines, disks, a VPC, a load balancer. So does the store of retrieval. They
// are the tenant's, and count against its limits, but only the platform changes them.

interface Managed {
  managed_by: string | null
}

/** The resource is a part of another one. */
export class ManagedResource extends Problem {
  constructor(title: string, managed_by: string | null) {
    super(
      409,
      'managed',
      'Another resource manages this',
      `The ${title} is a part of another resource: change that one`,
      {
        extensions: { managed_by },
      },
    )
  }
}

/** Throws ManagedResource for what a tenant must not change. */
export function needUnmanaged(title: string, { managed_by }: Managed): void {
  if (managed_by !== null) throw new ManagedResource(title, managed_by)
}

/**
 * Throws ManagedResource if a resource would use one of another manager, such as a tenant's NIC in a managed subnet. All
 * resources of the tenant may use the tenant's own.
 */
export function needSameManager(title: string, used: Managed, user: Managed): void {
  if (used.managed_by !== null && used.managed_by !== user.managed_by)
    throw new ManagedResource(title, used.managed_by)
}

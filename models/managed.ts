import { Problem } from '../lib/problem.ts'

// A deploy server makes resources for itself: machines, disks, a VPC, a load balancer. They are its tenant's, and count
// against its limits, but only the platform changes them.

interface Managed {
  managed_by: string | null
}

/** The resource belongs to a deploy server. */
export class ManagedResource extends Problem {
  constructor(title: string, managed_by: string | null) {
    super(409, 'managed', 'A deploy server manages this', `The ${title} belongs to a deploy server`, {
      extensions: { managed_by },
    })
  }
}

/** Throws ManagedResource for what a tenant must not change. */
export function needUnmanaged(title: string, { managed_by }: Managed): void {
  if (managed_by !== null) throw new ManagedResource(title, managed_by)
}

/** Throws ManagedResource if a resource would use one of another manager, as a tenant's NIC in a managed subnet. */
export function needSameManager(title: string, used: Managed, user: Managed): void {
  if (used.managed_by !== user.managed_by) throw new ManagedResource(title, used.managed_by)
}

import { Host } from '../../models/compute/hosts.ts'

/**
 * The host's id, or null if it is marked unreachable. The age of its last report does not count: while the platform was
 * down, it heard no host.
 */
export async function answering(hostId: string | null): Promise<string | null> {
  const host = hostId === null ? null : await Host.findById(hostId, { unreachable_since: 1 }).lean()
  return host && !host.unreachable_since ? hostId : null
}

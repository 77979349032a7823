import { Host } from '../../models/compute/hosts.ts'

/** The host, or null when it does not answer. Silence alone says nothing: while the platform was away itself, it could hear no host. */
export async function answering(hostId: string | null): Promise<string | null> {
  const host = hostId === null ? null : await Host.findById(hostId, { unreachable_since: 1 }).lean()
  return host && !host.unreachable_since ? hostId : null
}

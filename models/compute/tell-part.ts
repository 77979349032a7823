import { wantedSubject } from '../../lib/host-protocol.ts'
import { Host } from './hosts.ts'
import { planeToken } from './plane-tokens.ts'

// A host that does not answer by then asks after its next report anyway.
const answersWithinMs = 2_000

/**
 * Has a part of these hosts ask what is wanted, now and not after the next report. Leaves out those that do not answer the
 * platform. Throws if one does not answer.
 */
export async function tellPart(part: string, hostIds: string[]): Promise<void> {
  const hosts = await Host.find(
    { _id: { $in: hostIds }, unreachable_since: null, data_plane_url: { $ne: null } },
    { data_plane_url: 1 },
  ).lean()
  await Promise.all(hosts.map(({ _id, data_plane_url }) => tellHost(part, _id, data_plane_url ?? '')))
}

async function tellHost(part: string, hostId: string, url: string): Promise<void> {
  const asked = { method: 'POST', url: new URL(`/wanted/${part}`, url) }
  const authorization = `Bearer ${await planeToken(hostId, wantedSubject(part), asked)}`
  const answer = await fetch(asked.url, {
    method: asked.method,
    headers: { authorization },
    redirect: 'error', // a host must not lead the platform elsewhere
    signal: AbortSignal.timeout(answersWithinMs),
  })
  await answer.body?.cancel()
  if (!answer.ok) throw new Error(`the host answered ${answer.status}`)
}

import { wantedSubject } from '../../lib/host-protocol.ts'
import { sendPinned } from '../../lib/pinned-tls.ts'
import { Host } from './hosts.ts'
import { planeFields, planeRequest } from './plane-requests.ts'

// A host that does not answer by then asks after its next report anyway.
const answersWithinMs = 2_000

/**
 * Has a part of these hosts ask what is wanted, now and not after the next report. Leaves out those that do not answer the
 * platform. Throws if one does not answer.
 */
export async function tellPart(part: string, hostIds: string[]): Promise<void> {
  const hosts = await Host.find(
    { _id: { $in: hostIds }, unreachable_since: null, data_plane_url: { $ne: null } },
    planeFields,
  ).lean()
  await Promise.all(hosts.map((host) => tellHost(part, host)))
}

async function tellHost(part: string, host: Parameters<typeof planeRequest>[0]): Promise<void> {
  const asked = await planeRequest(host, wantedSubject(part), { method: 'POST', target: `/wanted/${part}` })
  const answer = await sendPinned({ ...asked, signal: AbortSignal.timeout(answersWithinMs) })
  if (answer.statusCode === 204)
    answer.resume() // frees the connection for the next request
  else {
    answer.destroy()
    throw new Error(`the host answered ${answer.statusCode}`)
  }
}

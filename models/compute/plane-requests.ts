import { SignJWT } from 'jose'
import { planeAudience, planeTokenSec, planeTokenType, requestHash } from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import type { PinnedRequest } from '../../lib/pinned-tls.ts'
import { Unavailable } from '../../lib/problem.ts'
import { sign } from '../identity/signing-keys.ts'
import type { HostDocument } from './hosts.ts'

/** Where a host's data plane is, and its certificate. */
export const planeFields = { data_plane_url: 1, data_plane_certificate: 1 } as const
type Reached = Pick<HostDocument, '_id' | keyof typeof planeFields>

/**
 * A request to a host's data plane, with a token for it alone. `target` is path and query. Throws Unavailable if the host
 * has not told where it is.
 */
export async function planeRequest(
  host: Reached | null,
  subject: string,
  { method, target }: { method: string; target: string },
): Promise<Pick<PinnedRequest, 'url' | 'certificate' | 'method' | 'headers'>> {
  const { data_plane_url: base, data_plane_certificate: certificate } = host ?? {}
  if (!host || !base?.startsWith('https:') || !certificate) throw new Unavailable('The host is not available')
  const url = new URL(target, base)
  // Without the `?` of an empty query, which would be sent and is not in the token.
  if (url.search === '') url.search = ''
  const token = await sign(
    new SignJWT({ req: requestHash(method, `${url.pathname}${url.search}`) })
      .setAudience(planeAudience(host._id))
      .setSubject(subject)
      .setJti(newId())
      .setIssuedAt()
      .setExpirationTime(`${planeTokenSec} s`),
    planeTokenType,
  )
  return { url, certificate, method, headers: { authorization: `Bearer ${token}` } }
}

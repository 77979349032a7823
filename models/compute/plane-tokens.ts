import { SignJWT } from 'jose'
import { planeAudience, requestHash, planeTokenSec, planeTokenType } from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { sign } from '../identity/signing-keys.ts'

/** A token for one request to a host's data plane. */
export const planeToken = (
  hostId: string,
  subject: string,
  { method, url }: { method: string; url: URL },
): Promise<string> =>
  sign(
    new SignJWT({ req: requestHash(method, `${url.pathname}${url.search}`) })
      .setAudience(planeAudience(hostId))
      .setSubject(subject)
      .setJti(newId())
      .setIssuedAt()
      .setExpirationTime(`${planeTokenSec} s`),
    planeTokenType,
  )

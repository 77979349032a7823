import { decodeJwt, importJWK, type JWTPayload, jwtVerify } from 'jose'
import { hostTokenType, type PublicKey } from '../../lib/host-protocol.ts'
import { Unauthenticated } from '../../lib/problem.ts'

const longestToken = 4096

/** The id of the host that says to have signed the token; not verified. Throws Unauthenticated. */
export function claimedHost(token: string): string {
  if (token.length > longestToken) throw new Unauthenticated('The token is too long')
  try {
    return decodeJwt(token).sub ?? ''
  } catch (cause) {
    throw refused(cause)
  }
}

/** The claims of a token that the host signed with the key that it enrolled. Throws Unauthenticated. */
export async function verifyHostToken(
  token: string,
  host: { id: string; public_key: PublicKey | null } | null,
  { audience, maxAgeSec }: { audience: string; maxAgeSec: number },
): Promise<JWTPayload> {
  if (!host?.public_key) throw refused(new Error('no such host'))
  const { payload } = await jwtVerify(token, await importJWK(host.public_key, 'EdDSA'), {
    algorithms: ['EdDSA'],
    typ: hostTokenType,
    issuer: host.id,
    subject: host.id,
    audience,
    maxTokenAge: maxAgeSec,
    clockTolerance: '5 s',
  }).catch((cause: unknown) => {
    throw refused(cause)
  })
  return payload
}

const refused = (cause: unknown): Unauthenticated =>
  Object.assign(new Unauthenticated('The host’s token is not valid'), { cause })

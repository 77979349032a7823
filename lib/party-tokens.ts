import {
  type CryptoKey,
  decodeJwt,
  decodeProtectedHeader,
  importJWK,
  type JWTPayload,
  jwtVerify,
  SignJWT,
} from 'jose'
import {
  gatewayAudience,
  gatewayTokenSec,
  internalAudience,
  internalTokenSec,
  type PublicKey,
  requestHash,
} from './host-protocol.ts'
import { newId } from './ids.ts'
import { kindOfTokenType, type Party, tokenTypeOf } from './parties.ts'
import { Unauthenticated } from './problem.ts'

// Tokens that a party signs with its key: EdDSA, `typ` by its kind, sub = iss = its id.

/** A party with its private key. */
export interface Credential {
  party: Party
  key: CryptoKey | Uint8Array
}

const sign = ({ party, key }: Credential, claims: JWTPayload, audience: string, sec: number) =>
  new SignJWT(claims)
    .setProtectedHeader({ alg: 'EdDSA', typ: tokenTypeOf(party.kind) })
    .setIssuer(party.id)
    .setSubject(party.id)
    .setAudience(audience)
    .setIssuedAt()
    .setExpirationTime(`${sec} s`)
    .sign(key)

/** A token for calls of the gateway. */
export const gatewayToken = (credential: Credential): Promise<string> =>
  sign(credential, {}, gatewayAudience, gatewayTokenSec)

/** A token for one request to the internal API. `target` is path and query. */
export const requestToken = (
  credential: Credential,
  { method, target }: { method: string; target: string },
): Promise<string> =>
  sign(credential, { req: requestHash(method, target), jti: newId() }, internalAudience, internalTokenSec)

const longestToken = 4096

/** The party that claims to have signed the token; not verified. Throws Unauthenticated. */
export function claimedParty(token: string): Party {
  if (token.length > longestToken) throw new Unauthenticated('The token is too long')
  try {
    const kind = kindOfTokenType(decodeProtectedHeader(token).typ)
    if (kind) return { kind, id: decodeJwt(token).sub ?? '' }
  } catch (cause) {
    throw refused(cause)
  }
  throw refused(new Error('a token of another type'))
}

/** The claims of a token that the party signed with this key. Throws Unauthenticated, also without a key. */
export async function verifyPartyToken(
  token: string,
  { kind, id }: Party,
  key: PublicKey | null,
  { audience, maxAgeSec }: { audience: string; maxAgeSec: number },
): Promise<JWTPayload> {
  if (!key) throw refused(new Error(`no such ${kind}`))
  const { payload } = await jwtVerify(token, await importJWK(key, 'EdDSA'), {
    algorithms: ['EdDSA'],
    typ: tokenTypeOf(kind),
    issuer: id,
    subject: id,
    audience,
    maxTokenAge: maxAgeSec,
    clockTolerance: '5 s',
  }).catch((cause: unknown) => {
    throw refused(cause)
  })
  return payload
}

const refused = (cause: unknown): Unauthenticated =>
  Object.assign(new Unauthenticated('The token is not valid'), { cause })

import { hash } from 'node:crypto'
import { decodeJwt, type JWTPayload, jwtVerify, SignJWT } from 'jose'
import { newId } from '../../lib/ids.ts'
import { type ApiClientDocument, effectiveScopes, livingClient, noteUse } from './api-clients.ts'
import type { Permission } from './roles.ts'
import { sign, verificationKey } from './signing-keys.ts'

/** What an access token says of its kind, so that no other token of ours passes for one (RFC 9068). */
export const accessTokenType = 'at+jwt'
export const accessTokenSec = 3_600

/** A token for these scopes. `issuer` is the API's own address, for which it is also meant. */
export function issueAccessToken(
  client: ApiClientDocument,
  scopes: string[],
  issuer: string,
): Promise<string> {
  const { client_id, tenant_id, token_generation } = client
  const token = new SignJWT({ client_id, tenant_id, scope: scopes.join(' '), generation: token_generation })
    .setIssuer(issuer)
    .setAudience(issuer)
    .setSubject(client_id)
    .setJti(newId())
    .setIssuedAt()
    .setExpirationTime(`${accessTokenSec} s`)
  return sign(token, accessTokenType)
}

export interface Machine {
  client: ApiClientDocument
  permissions: ReadonlySet<Permission>
}

/**
 * Who this token stands for, as things are now: null when its client was deleted, has expired or had its tokens
 * revoked; what was taken from the client is gone. Rejects when the token is not one of ours, or no longer good.
 */
export async function machineOf(token: string, issuer: string): Promise<Machine | null> {
  // Asked for while the signature is checked: believed only if that is good.
  const claimed = String(decodeJwt(token)['client_id'])
  const [payload, client] = await Promise.all([verify(token, issuer), livingClient(claimed)])
  if (!client || client.token_generation !== payload['generation']) return null
  noteUse(client)
  return { client, permissions: effectiveScopes(client, String(payload['scope']).split(' ')) }
}

// To check a signature takes as long as the find of the client. A token that was found good is not checked again until the
// signing keys are read anew, as often as this; when it expires is looked at each time.
const rememberedMs = 10_000
// Some 500 bytes each.
const mostRemembered = 10_000
let good = new Map<string, JWTPayload>()
let goodSince = 0

/** The claims of one of our tokens. Rejects when it is not one, or has expired. */
async function verify(token: string, issuer: string): Promise<JWTPayload> {
  const now = Date.now()
  if (now - goodSince > rememberedMs || good.size >= mostRemembered) {
    good = new Map()
    goodSince = now
  }
  // Not the token itself: a dump of the memory has no more tokens in it than there are requests under way.
  const key = hash('sha256', `${issuer} ${token}`, 'base64')
  const known = good.get(key)
  if (known?.exp !== undefined && known.exp * 1000 > now) return known
  const { payload } = await jwtVerify(token, verificationKey, {
    algorithms: ['EdDSA'],
    typ: accessTokenType,
    issuer,
    audience: issuer,
    requiredClaims: ['sub', 'client_id', 'scope', 'jti', 'iat', 'exp'],
    maxTokenAge: accessTokenSec,
  })
  good.set(key, payload)
  return payload
}

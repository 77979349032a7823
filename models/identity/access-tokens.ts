import { decodeJwt, SignJWT } from 'jose'
import { newId } from '../../lib/ids.ts'
import { type ApiClientDocument, effectiveScopes, livingClient, noteUse } from './api-clients.ts'
import type { Permission } from './roles.ts'
import { sign } from './signing-keys.ts'
import { makeVerifier } from './verified-tokens.ts'

/** The `typ` header of access tokens. It keeps our other tokens from passing as access tokens (RFC 9068). */
export const accessTokenType = 'at+jwt'
export const accessTokenSec = 3_600

/** Issues a token for these scopes. `issuer` is the address of the API, which is also the audience. */
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
 * The client of this token with its current permissions. Null if the client was deleted, has expired or had its tokens
 * revoked. Rejects if the token is not ours or has expired.
 */
export async function machineOf(token: string, issuer: string): Promise<Machine | null> {
  // Read the client while the signature is checked. The claim counts only if the signature is valid.
  const claimed = String(decodeJwt(token)['client_id'])
  const [payload, client] = await Promise.all([
    verify(token, { issuer, audience: issuer }),
    livingClient(claimed),
  ])
  if (!client || client.token_generation !== payload['generation']) return null
  noteUse(client)
  return { client, permissions: effectiveScopes(client, String(payload['scope']).split(' ')) }
}

/** The claims of a token. Rejects if the token is not ours or has expired. */
const verify = makeVerifier({
  typ: accessTokenType,
  requiredClaims: ['sub', 'client_id', 'scope', 'jti', 'iat', 'exp'],
  maxTokenAge: accessTokenSec,
})

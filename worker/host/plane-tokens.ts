import type { IncomingMessage } from 'node:http'
import { createLocalJWKSet, jwtVerify } from 'jose'
import {
  type ReportAnswer,
  planeAudience,
  requestHash,
  planeTokenSec,
  planeTokenType,
} from '../../lib/host-protocol.ts'
import { Unauthenticated, Unavailable } from '../../lib/problem.ts'

const clockToleranceSec = 5
// Allows 3,000 requests a second during the lifetime of a token.
const mostRemembered = 100_000
const longestToken = 4096

export type PlaneTokens = ReturnType<typeof makePlaneTokens>

/** Verifies the API's tokens for the data plane. Each is valid once, for one request. */
export function makePlaneTokens() {
  let trusted: { hostId: string; keys: ReturnType<typeof createLocalJWKSet> } | undefined
  const used = new Map<string, number>() // jti and expiry, roughly ordered by expiry

  function remember(jti: string, endsAt: number): void {
    const now = Date.now() / 1000
    for (const [old, ended] of used) {
      if (ended > now) break
      used.delete(old)
    }
    if (used.has(jti)) throw new Unauthenticated('The token was used before')
    if (used.size >= mostRemembered) throw new Unavailable('Too many requests at once')
    used.set(jti, endsAt + clockToleranceSec)
  }

  return {
    /** From now on, accepts tokens for this host that are signed with one of these keys. */
    trust(hostId: string, jwks: ReportAnswer['jwks']): void {
      trusted = { hostId, keys: createLocalJWKSet(jwks) }
    },

    /** Consumes the request's token. Throws Unauthenticated unless it is valid for this subject and request. */
    async redeem({ headers, method = '', url = '' }: IncomingMessage, subject: string): Promise<void> {
      const [, token] = /^Bearer +(\S+)$/i.exec(headers.authorization ?? '') ?? []
      if (!trusted || !token || token.length > longestToken) throw new Unauthenticated('A token is needed')
      const { payload } = await jwtVerify(token, trusted.keys, {
        algorithms: ['EdDSA'],
        typ: planeTokenType,
        audience: planeAudience(trusted.hostId),
        subject,
        requiredClaims: ['exp', 'iat', 'jti'],
        maxTokenAge: planeTokenSec,
        clockTolerance: clockToleranceSec,
      }).catch((cause: unknown) => {
        throw Object.assign(new Unauthenticated('The token is not valid'), { cause })
      })
      const { exp = 0, iat = 0, jti = '', req } = payload
      if (req !== requestHash(method, url)) throw new Unauthenticated('The token is for another request')
      if (exp - iat > planeTokenSec) throw new Unauthenticated('The token is valid for too long')
      remember(jti, exp)
    },
  }
}

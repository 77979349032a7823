import { hash } from 'node:crypto'
import { type JWTPayload, jwtVerify, type JWTVerifyOptions } from 'jose'
import { verificationKey } from './signing-keys.ts'

// A signature check takes as long as a query. A valid token is remembered until the signing keys are read again, which is
// as often. Its expiry is checked each time.
const rememberedMs = 10_000
// Some 500 bytes each.
const mostRemembered = 10_000

/** Verifies the platform's own tokens of one kind, by its signing keys. Rejects if a token is not ours or has expired. */
export function makeVerifier(
  options: JWTVerifyOptions,
): (token: string, audience: { issuer: string; audience: string }) => Promise<JWTPayload> {
  let good = new Map<string, JWTPayload>()
  let goodSince = 0

  return async (token, { issuer, audience }) => {
    const now = Date.now()
    if (now - goodSince > rememberedMs || good.size >= mostRemembered) {
      good = new Map()
      goodSince = now
    }
    // A hash, not the token: a memory dump holds only the tokens of requests in progress.
    const key = hash('sha256', `${issuer} ${token}`, 'base64')
    const known = good.get(key)
    if (known?.exp !== undefined && known.exp * 1000 > now) return known
    const { payload } = await jwtVerify(token, verificationKey, {
      algorithms: ['EdDSA'],
      ...options,
      issuer,
      audience,
    })
    good.set(key, payload)
    return payload
  }
}

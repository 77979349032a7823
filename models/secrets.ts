import { createHmac, randomBytes } from 'node:crypto'
import { type KeyRing, readKeyRing, sealJson, unsealJson } from '../lib/seal.ts'

// Secrets at rest: what must be read again is sealed, what need only be known again is hashed.

let ring: KeyRing | undefined

/** Reads the master keys; called once, by connectDatabase. */
export function useMasterKeys(path: string): void {
  ring = readKeyRing(path)
}

/** Seals a secret for storage; `context` is where it belongs, and it opens nowhere else. */
export const sealSecret = (value: unknown, context: string): string => sealJson(masterKeys(), value, context)
export const unsealSecret = <T>(stored: string, context: string): T =>
  unsealJson<T>(masterKeys(), stored, context)

/** 256 random bits. The prefix lets scanners of leaked secrets know it. */
export const newToken = (prefix: string): string => `${prefix}_${randomBytes(32).toString('base64url')}`

/** Keyed, so that a stolen database does not let tokens be tested; not slow, since none can be guessed. */
export function hashToken(token: string): string {
  const { current, keys } = masterKeys()
  // The oldest key: a token issued before a rotation is still known after it.
  const key = [...keys.values()].at(-1)
  if (!key) throw new Error(`no master key ${current}`)
  return createHmac('sha256', key).update(token).digest('base64url')
}

function masterKeys(): KeyRing {
  if (!ring) throw new Error('connectDatabase was not called')
  return ring
}

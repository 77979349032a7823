import { createHmac, randomBytes } from 'node:crypto'
import { keyIdOf, sealJson, unsealJson } from '../lib/seal.ts'
import { freshKeys, hashKey, keysWith } from './data-keys.ts'

// Secrets at rest: what must be read again is sealed, what need only be known again is hashed.

/** Seals a secret for storage in a field that `sealedField` declares; it opens in its `context` and nowhere else. */
export const sealSecret = async (value: unknown, context: string): Promise<string> =>
  sealJson(await freshKeys(), value, context)
export const unsealSecret = async <T>(stored: string, context: string): Promise<T> =>
  unsealJson<T>(await keysWith(keyIdOf(stored)), stored, context)

/** 256 random bits. The prefix lets scanners of leaked secrets know it. */
export const newToken = (prefix: string): string => `${prefix}_${randomBytes(32).toString('base64url')}`

/** Keyed, so that a stolen database does not let tokens be tested; not slow, since none can be guessed. */
export const hashToken = (token: string): string =>
  createHmac('sha256', hashKey()).update(token).digest('base64url')

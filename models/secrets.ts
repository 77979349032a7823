import { createHmac, randomBytes } from 'node:crypto'
import { keyIdOf, sealJson, unsealJson } from '../lib/seal.ts'
import { freshKeys, hashKey, keysWith } from './data-keys.ts'

// Secrets at rest: secrets that must be read again are sealed; those that need only be compared are hashed.

/** Seals a secret for a field that `sealedField` declares. It opens only in the same `context`. */
export const sealSecret = async (value: unknown, context: string): Promise<string> =>
  sealJson(await freshKeys(), value, context)
export const unsealSecret = async <T>(stored: string, context: string): Promise<T> =>
  unsealJson<T>(await keysWith(keyIdOf(stored)), stored, context)

/** 256 random bits. The prefix lets secret scanners recognize leaked tokens. */
export const newToken = (prefix: string): string => `${prefix}_${randomBytes(32).toString('base64url')}`

/** Keyed: a stolen database does not allow testing of tokens. A fast hash is enough, since tokens cannot be guessed. */
export const hashToken = (token: string): string =>
  createHmac('sha256', hashKey()).update(token).digest('base64url')

import { randomBytes } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** The secrets of the platform's own MongoDB; made once and kept. */
export interface MongodbSecrets {
  rootPassword: string
  appPassword: string
}

/**
 * Makes the state folder's keys on the first start, readable by this user alone. An existing key is never replaced:
 * what it sealed would be lost.
 */
export function makeSecrets(state: string): MongodbSecrets {
  mkdirSync(state, { recursive: true, mode: 0o700 })
  for (const file of ['master.key', 'codec.key']) makeOnce(join(state, file), keyLine)
  makeOnce(join(state, 'mongodb.keyfile'), mongodbKey)
  const passwords = makeOnce(join(state, 'mongodb.json'), mongodbPasswords)
  return JSON.parse(passwords) as MongodbSecrets
}

/** A new key in the format of config.ts's key files. */
export const keyLine = (): string => `k1:${randomBytes(32).toString('base64')}\n`

/** mongod's key file may hold at most 1024 characters. */
export const mongodbKey = (): string => randomBytes(756).toString('base64')

export const mongodbPasswords = (): string =>
  JSON.stringify({ rootPassword: newPassword(), appPassword: newPassword() } satisfies MongodbSecrets)

/** Letters, digits, `-` and `_`: safe in a URL. */
export const newPassword = (): string => randomBytes(24).toString('base64url')

/** Makes a file for its owner alone unless it exists, and returns its content. */
export function makeOnce(path: string, content: () => string): string {
  try {
    writeFileSync(path, content(), { mode: 0o600, flag: 'wx' })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  return readFileSync(path, 'utf8')
}

/**
 * The first owner's e-mail and password as the body of a login request: for the demo, the tests, and lost passwords.
 */
export const ownerFile = (layout: { state: string }): string => join(layout.state, 'owner.json')

/** Writes a file that only this user may read, even if it was readable by others before. */
export function writePrivate(path: string, content: string): void {
  writeFileSync(path, content, { mode: 0o600 })
}

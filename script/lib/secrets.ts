import { randomBytes } from 'node:crypto'
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'

/** What the platform's own MongoDB is secured with; made once and kept. */
export interface MongodbSecrets {
  rootPassword: string
  appPassword: string
}

/**
 * Makes the state folder's keys on the first start, readable by this user alone. A key that exists is never replaced:
 * what it sealed would be lost.
 */
export function makeSecrets(state: string): MongodbSecrets {
  mkdirSync(state, { recursive: true, mode: 0o700 })
  for (const file of ['master.key', 'codec.key']) makeOnce(join(state, file), keyLine)
  makeOnce(join(state, 'mongodb.keyfile'), mongodbKey)
  const passwords = makeOnce(join(state, 'mongodb.json'), mongodbPasswords)
  return JSON.parse(passwords) as MongodbSecrets
}

/** A new key in the form of config.ts's key files. */
export const keyLine = (): string => `k1:${randomBytes(32).toString('base64')}\n`

/** What mongod's key file may hold at most is 1024 characters. */
export const mongodbKey = (): string => randomBytes(756).toString('base64')

export const mongodbPasswords = (): string =>
  JSON.stringify({ rootPassword: newPassword(), appPassword: newPassword() } satisfies MongodbSecrets)

/** Letters, digits, `-` and `_`: needs no escape in a URL. */
export const newPassword = (): string => randomBytes(24).toString('base64url')

/** Makes a file unless it is there, for its owner alone, and returns what it holds. */
export function makeOnce(path: string, content: () => string): string {
  try {
    writeFileSync(path, content(), { mode: 0o600, flag: 'wx' })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
  return readFileSync(path, 'utf8')
}

/** The first owner's e-mail and password, as the login's request body: for the demo, the tests, and who has lost them. */
export const ownerFile = (layout: { state: string }): string => join(layout.state, 'owner.json')

/** Writes a file that only this user may read, whatever its mode was before. */
export function writePrivate(path: string, content: string): void {
  writeFileSync(path, content, { mode: 0o600 })
}

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
  // The form of config.ts's key files: `<id>:<32 bytes, base64>`.
  for (const file of ['master.key', 'codec.key']) once(join(state, file), () => `k1:${password()}\n`)
  // mongod refuses a key file that others may read, and more than 1024 characters.
  once(join(state, 'mongodb.keyfile'), () => randomBytes(756).toString('base64'))
  const mongodb = join(state, 'mongodb.json')
  once(mongodb, () => JSON.stringify({ rootPassword: urlPassword(), appPassword: urlPassword() }))
  return JSON.parse(readFileSync(mongodb, 'utf8')) as MongodbSecrets
}

const password = () => randomBytes(32).toString('base64')
const urlPassword = () => randomBytes(24).toString('base64url')

function once(path: string, content: () => string): void {
  try {
    writeFileSync(path, content(), { mode: 0o600, flag: 'wx' })
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
  }
}

/** The first owner's e-mail and password, as the login's request body: for the demo, the tests, and who has lost them. */
export const ownerFile = (layout: { state: string }): string => join(layout.state, 'owner.json')

/** Writes a file that only this user may read, whatever its mode was before. */
export function writePrivate(path: string, content: string): void {
  writeFileSync(path, content, { mode: 0o600 })
}

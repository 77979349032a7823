import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Answer, Json } from './client.ts'
import { layout } from './stack.ts'

// Collects every secret that the tests of a run send or receive, so that the last test can search for them.

const secretFields = new Set(
  ['password', 'new_password', 'current_password', 'token', 'remember_token'].concat([
    'client_secret',
    'root_password',
    'api_token',
    'access_token',
    'secret',
    'recovery_codes',
    'config_vars',
    'envs',
    'api_key',
    'connection_string',
    'public_connection_string',
  ]),
)
// Values that are shorter, or that repeat few characters to be large, would be found by chance.
const shortest = 11
const fewestCharacters = 4
const isDistinct = (text: string): boolean =>
  text.length >= shortest && new Set(text).size >= fewestCharacters && !text.includes('\n')

/** A file with one secret a line, because each test file runs in its own process. */
export const plantedFile = (): string => join(layout.state, 'planted')

const known = new Set<string>()

/** Collects the secrets of an accepted request. Those of a refused one are guesses, or not secret yet. */
export function plant(token: string | undefined, sent: unknown, answer: Answer): void {
  if (answer.status >= 400) return
  plantAll([...secretsIn(sent), ...secretsIn(answer.body), ...(token === undefined ? [] : [token])])
}

export function plantAll(found: string[]): void {
  const fresh = found.filter((text) => isDistinct(text) && !known.has(text))
  for (const text of fresh) known.add(text)
  if (fresh.length) appendFileSync(plantedFile(), `${fresh.join('\n')}\n`, { mode: 0o600 })
}

export const planted = (): string[] =>
  existsSync(plantedFile())
    ? [...new Set(readFileSync(plantedFile(), 'utf8').split('\n').filter(Boolean))]
    : []

function secretsIn(value: unknown, isSecret = false): string[] {
  if (typeof value === 'string') return isSecret ? [value, ...passwordsIn(value)] : []
  if (Array.isArray(value)) return value.flatMap((entry) => secretsIn(entry, isSecret))
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return []
  return Object.entries(value as Json).flatMap(([name, inner]) =>
    secretsIn(inner, isSecret || isSecretField(name, inner)),
  )
}

/** `generated` has the values of a service, which are secrets; that of a build is one of five fixed texts. */
const isSecretField = (name: string, value: unknown): boolean =>
  secretFields.has(name) || (name === 'generated' && typeof value === 'object')

/** The password of a connection string, which may also leak alone. */
const passwordsIn = (text: string): string[] =>
  [/^[a-z+]+:\/\/[^:@/]*:([^@/]+)@/.exec(text)?.[1] ?? []].flat()

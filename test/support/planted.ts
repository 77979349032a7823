import { appendFileSync, existsSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Answer, Json } from './client.ts'
import { layout } from './stack.ts'

// Every secret that the tests of one run send or are given, so that the last of them can look where they have got to.

const secretFields = new Set(
  ['password', 'new_password', 'current_password', 'token', 'remember_token'].concat([
    'client_secret',
    'access_token',
    'secret',
    'recovery_codes',
    'config_vars',
  ]),
)
// What is shorter is found by chance.
const shortest = 11

/** One a line, in a file, since each test file runs by itself. */
export const plantedFile = (): string => join(layout.state, 'planted')

const known = new Set<string>()

/** Keeps the secrets of a request that was answered with yes; others are guesses, or not secret yet. */
export function plant(token: string | undefined, sent: unknown, answer: Answer): void {
  if (answer.status >= 400) return
  plantAll([...secretsIn(sent), ...secretsIn(answer.body), ...(token === undefined ? [] : [token])])
}

export function plantAll(found: string[]): void {
  const fresh = found.filter((text) => text.length >= shortest && !/\n/.test(text) && !known.has(text))
  for (const text of fresh) known.add(text)
  if (fresh.length) appendFileSync(plantedFile(), `${fresh.join('\n')}\n`, { mode: 0o600 })
}

export const planted = (): string[] =>
  existsSync(plantedFile())
    ? [...new Set(readFileSync(plantedFile(), 'utf8').split('\n').filter(Boolean))]
    : []

function secretsIn(value: unknown, isSecret = false): string[] {
  if (typeof value === 'string') return isSecret ? [value] : []
  if (Array.isArray(value)) return value.flatMap((entry) => secretsIn(entry, isSecret))
  if (typeof value !== 'object' || value === null || value instanceof Uint8Array) return []
  return Object.entries(value as Json).flatMap(([name, inner]) =>
    secretsIn(inner, isSecret || secretFields.has(name)),
  )
}

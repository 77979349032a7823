import { createHash } from 'node:crypto'
import canonicalize from 'canonicalize'

/** A value has no canonical JSON: it is no JSON, or a text of it has half a character (a lone surrogate). */
export class NotCanonical extends Error {
  override readonly name = 'NotCanonical'
}

/** The one JSON text of a value (RFC 8785): the order of its fields makes no difference. Throws NotCanonical. */
export function canonicalJson(value: unknown): string {
  let text: string | undefined
  try {
    text = canonicalize(value)
  } catch (error) {
    throw new NotCanonical('has a number that JSON has not, or half a character (a lone surrogate)', {
      cause: error,
    })
  }
  if (text === undefined) throw new NotCanonical('is not JSON')
  return text
}

/** SHA-256 of the canonical JSON, in hex. */
export const hashOf = (value: unknown): string =>
  createHash('sha256').update(canonicalJson(value)).digest('hex')

/** What names a published version: its number for people, its hash for caches, gates and build ids. */
export interface Version {
  number: number
  spec_sha256: string
}

/** The version that publishing a draft makes, or the latest one if the draft is the same. */
export function versionOf(draft: unknown, latest: Version | null): Version & { isNew: boolean } {
  const spec_sha256 = hashOf(draft)
  if (latest?.spec_sha256 === spec_sha256) return { ...latest, isNew: false }
  return { number: (latest?.number ?? 0) + 1, spec_sha256, isNew: true }
}

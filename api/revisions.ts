import { Problem } from '../lib/problem.ts'

// Conditional changes (RFC 9110, 13.1.1). The entity tag of a resource is its revision: `"7"`.

const tag = String.raw`(?:W/)?"[\x21\x23-\x7e]*"`
const list = new RegExp(String.raw`^${tag}(?:\s*,\s*${tag})*$`)
const revision = /(?<!W\/)"(\d{1,15})"/g

/** The revisions that an If-Match allows. Null: any. A weak tag, and one that is no revision, matches nothing. */
export function revisionsIn(ifMatch: string | undefined): number[] | null {
  if (ifMatch === undefined || ifMatch.trim() === '*') return null
  if (!list.test(ifMatch.trim()))
    throw new Problem(
      400,
      'invalid_input',
      'The request is invalid',
      'If-Match must be * or entity tags, such as "7"',
    )
  return [...ifMatch.matchAll(revision)].map(([, number]) => Number(number))
}

/** The entity tag of what an answer shows; null if that has no revision. */
export function etagOf(answer: unknown): string | null {
  if (typeof answer !== 'object' || answer === null) return null
  const shown = 'location' in answer && 'body' in answer ? answer.body : answer
  if (typeof shown !== 'object' || shown === null || !('revision' in shown)) return null
  return typeof shown.revision === 'number' ? `"${shown.revision}"` : null
}

import { RE2JS } from 're2js'
import { bounds } from './bounds.ts'

// Regular expressions of tenants, in time linear in the text (RE2).

export class RegexInvalid extends Error {
  override readonly name = 'RegexInvalid'
}

const kept = new Map<string, RE2JS>()
const mostKept = 100

/** Whether the pattern matches anywhere in the text. Throws RegexInvalid. */
export const matchesRegex = (text: string, pattern: string): boolean => compiledRegex(pattern).test(text)

/** Throws RegexInvalid. */
export function compiledRegex(pattern: string): RE2JS {
  const known = kept.get(pattern)
  if (known) return known
  if (pattern.length > bounds.regexChars) {
    throw new RegexInvalid(`The regular expression has more than ${bounds.regexChars} characters`)
  }
  try {
    const compiled = RE2JS.compile(pattern)
    if (kept.size >= mostKept) kept.clear()
    kept.set(pattern, compiled)
    return compiled
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error)
    throw new RegexInvalid(`The regular expression is invalid: ${reason}`, { cause: error })
  }
}

import type { z } from 'zod'

// What is said of a value that a schema refuses: after the name of the field, as "must be …".

type Issue = Parameters<z.core.$ZodErrorMap>[0]

const kinds: Record<string, string> = {
  string: 'a string',
  number: 'a number',
  int: 'a whole number',
  boolean: 'true or false',
  array: 'an array',
  object: 'an object',
  record: 'an object',
  null: 'null',
}
const formats: Record<string, string> = {
  uuid: 'a UUID',
  email: 'an e-mail address',
  url: 'a URL',
  datetime: 'a time such as 2026-01-31T12:00:00Z',
  base64: 'base64',
  ipv4: 'an IPv4 address',
  cidrv4: 'an IPv4 range such as 10.0.0.0/16',
}
const things: Record<string, string> = {
  string: 'characters',
  array: 'items',
  set: 'items',
  record: 'fields',
}

/** Words for an issue whose schema has none of its own. */
export function wordsFor(issue: Issue): string | undefined {
  switch (issue.code) {
    case 'invalid_type':
      return issue.input === undefined ? 'is required' : `must be ${kinds[issue.expected] ?? issue.expected}`
    case 'too_small':
      return bound(issue.origin, 'at least', 'more than', issue.minimum, issue.inclusive)
    case 'too_big':
      return bound(issue.origin, 'at most', 'less than', issue.maximum, issue.inclusive)
    case 'not_multiple_of':
      return `must be a multiple of ${issue.divisor}`
    case 'invalid_value':
      return `must be ${issue.values.length > 1 ? 'one of ' : ''}${issue.values.map(String).join(', ')}`
    case 'invalid_format':
      return issue.format === 'regex'
        ? `must match ${issue.pattern}`
        : `must be ${formats[issue.format] ?? `a valid ${issue.format}`}`
    case 'invalid_key':
      return 'is not a name that is allowed here'
    case 'invalid_union':
      return issue.input === undefined ? 'is required' : 'has none of the forms that are allowed here'
    default:
      return undefined
  }
}

function bound(
  origin: string,
  inclusive: string,
  exclusive: string,
  limit: number | bigint,
  isInclusive = true,
): string {
  const thing = things[origin]
  if (thing && inclusive === 'at least' && Number(limit) === 1) return 'must not be empty'
  const amount = `${isInclusive ? inclusive : exclusive} ${limit}`
  return thing ? `must have ${amount} ${thing}` : `must be ${amount}`
}

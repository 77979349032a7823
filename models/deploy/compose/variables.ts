import type { Fault, Path } from './text.ts'

// Variables in a compose file, as Docker Compose replaces them: `$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME-default}`,
// `${NAME:?message}`, `${NAME?message}`, `${NAME:+other}`, `${NAME+other}`, and `$$` for a dollar.

export type Lookup = (name: string) => string | undefined

const start = /\$(?:(\$)|([A-Za-z_][A-Za-z0-9_]*)|\{([A-Za-z_][A-Za-z0-9_]*)(:?[-?+])?)/g

class BadVariable extends Error {}

/** Replaces the variables of a text. Throws BadVariable. */
function replace(text: string, lookup: Lookup): string {
  let out = ''
  let at = 0
  for (;;) {
    start.lastIndex = at
    const found = start.exec(text)
    const before = text.slice(at, found?.index)
    if (before.includes('$'))
      throw new BadVariable('has a `$` that begins no variable: write `$$` for a dollar')
    out += before
    if (!found) return out
    const [whole, dollar, plain, braced = '', operator] = found
    at = found.index + whole.length
    if (dollar) out += '$'
    else if (plain !== undefined) out += valueOf(plain, lookup)
    else {
      const end = closing(text, at)
      const rest = text.slice(at, end)
      at = end + 1
      out += operator ? operated(braced, operator, rest, lookup) : bare(braced, rest, lookup)
    }
  }
}

function bare(name: string, rest: string, lookup: Lookup): string {
  if (rest) throw new BadVariable(`has a variable that is none: \${${name}${rest}}`)
  return valueOf(name, lookup)
}

function valueOf(name: string, lookup: Lookup): string {
  const value = lookup(name)
  if (value === undefined) throw new BadVariable(`${name} has no value: give it in envs, or a default`)
  return value
}

function operated(name: string, operator: string, rest: string, lookup: Lookup): string {
  const value = lookup(name)
  const isSet = value !== undefined && (value !== '' || !operator.startsWith(':'))
  const kind = operator.at(-1)
  if (kind === '+') return isSet ? replace(rest, lookup) : ''
  if (isSet) return value
  if (kind === '-') return replace(rest, lookup)
  throw new BadVariable(`${name} has no value: ${rest || 'it must be given in envs'}`)
}

/** The index of the brace that closes the one before `from`. */
function closing(text: string, from: number): number {
  let depth = 1
  for (let at = from; at < text.length; at++) {
    if (text.startsWith('${', at)) depth++
    if (text[at] === '}' && --depth === 0) return at
  }
  throw new BadVariable('has a variable whose `}` is missing')
}

/** Replaces the variables in all texts of a value; keys stay as they are. Adds to `faults` what cannot be replaced. */
export function interpolate(value: unknown, lookup: Lookup, faults: Fault[], path: Path = []): unknown {
  if (typeof value === 'string') {
    try {
      return replace(value, lookup)
    } catch (error) {
      if (!(error instanceof BadVariable)) throw error
      faults.push({ path, message: error.message })
      return value
    }
  }
  if (Array.isArray(value))
    return value.map((item, index) => interpolate(item, lookup, faults, [...path, index]))
  if (value === null || typeof value !== 'object') return value
  return Object.fromEntries(
    Object.entries(value).map(([key, item]) => [key, interpolate(item, lookup, faults, [...path, key])]),
  )
}

/** The names of all variables of a value, also of those that have a default. */
export function variablesIn(value: unknown): string[] {
  const names = new Set<string>()
  const note = (name: string): string => {
    names.add(name)
    return ''
  }
  interpolate(value, note, [])
  return [...names].toSorted()
}

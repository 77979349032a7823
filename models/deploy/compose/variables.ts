import type { Fault, Path } from './text.ts'

// Variables in a compose file, as Docker Compose replaces them: `$NAME`, `${NAME}`, `${NAME:-default}`, `${NAME-default}`,
// `${NAME:?message}`, `${NAME?message}`, `${NAME:+other}`, `${NAME+other}`, and `$$` for a dollar.

export type Lookup = (name: string) => string | undefined

/** A variable within the default of a variable, and so on. */
const deepest = 32
/** The values of all variables, each as often as it is used: a short text could use a long one many times. */
const charactersAtMost = 1024 ** 2

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
  if (rest) throw new BadVariable(`has an invalid variable: \${${name}${rest}}`)
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

const brace = /\$\{|\}/g

/** The index of the brace that closes the one before `from`. Whatever is within is read again, so its depth is limited. */
function closing(text: string, from: number): number {
  let depth = 1
  brace.lastIndex = from
  for (let found = brace.exec(text); found; found = brace.exec(text)) {
    depth += found[0] === '}' ? -1 : 1
    if (depth > deepest) throw new BadVariable(`nests variables more than ${deepest} deep`)
    if (depth === 0) return found.index
  }
  throw new BadVariable('has a variable whose `}` is missing')
}

/** A text with its variables replaced, or why they cannot be. */
function replacedText(text: string, lookup: Lookup): { value: string; fault?: string } {
  try {
    return { value: replace(text, lookup) }
  } catch (error) {
    if (!(error instanceof BadVariable)) throw error
    return { value: text, fault: error.message }
  }
}

/** Replaces the variables in all texts of a value; keys stay as they are. Adds to `faults` what cannot be replaced. */
export function interpolate(value: unknown, lookup: Lookup, faults: Fault[]): unknown {
  let left = charactersAtMost
  const bounded: Lookup = (name) => {
    const found = lookup(name)
    left -= found?.length ?? 0
    if (left < 0) throw new BadVariable('is too long: all variables together may have 1 MiB')
    return found
  }
  // What aliases stand for is there many times, and is replaced once.
  const texts = new Map<string, ReturnType<typeof replacedText>>()
  const objects = new Map<object, unknown>()
  const inText = (text: string, path: Path): string => {
    const done = texts.get(text) ?? replacedText(text, bounded)
    texts.set(text, done)
    if (done.fault) faults.push({ path, message: done.fault })
    return done.value
  }
  const inAll = (within: unknown, path: Path): unknown => {
    if (typeof within === 'string') return inText(within, path)
    if (within === null || typeof within !== 'object') return within
    if (!objects.has(within))
      objects.set(
        within,
        Array.isArray(within)
          ? within.map((item, index) => inAll(item, [...path, index]))
          : Object.fromEntries(
              Object.entries(within).map(([key, item]) => [key, inAll(item, [...path, key])]),
            ),
      )
    return objects.get(within)
  }
  return inAll(value, [])
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

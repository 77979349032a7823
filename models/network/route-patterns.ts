// What a tenant may match requests by. All of it ends up in the configuration of a proxy, which compiles the regexes.

/** An exact host name, or `*.` and a domain, in lower case. */
export const hostPattern =
  /^(\*\.)?[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?(\.[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?)*$/

/** The characters of a path (RFC 3986, 3.3), with percent-encoded others. */
export const pathPattern = /^\/(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]|%[0-9A-Fa-f]{2})*$/

export const longestRegex = 256
// Each further repetition multiplies the steps of a match by the length of the path, each optional item doubles them.
const mostRepeats = 3
const mostOptional = 8
const longestRepeat = 100

/**
 * Why a regex cannot be used; null if it can. A match must not take long for any path: the pattern has no back
 * references, no look-around, few repetitions, and no repetition of something that can match in several ways.
 */
export function faultOfRegex(pattern: string): string | null {
  if (pattern.length > longestRegex) return `must be ${longestRegex} characters at most`
  if (!/^[\x21-\x7e]+$/.test(pattern)) return 'must be printable ASCII without spaces'
  if (!compiles(pattern)) return 'is not a regular expression'
  if (/\\[1-9kpPuxcbBGAzZQEK]/.test(withoutEscapedBackslashes(pattern)))
    return 'must not have back references or escapes other than of classes and characters'
  if (/\(\?(?!:)/.test(outsideClasses(pattern))) return 'must not have look-around or named groups'
  return faultOfRepeats(outsideClasses(pattern))
}

function compiles(pattern: string): boolean {
  try {
    return new RegExp(pattern, 'u').unicode
  } catch {
    return false
  }
}

/** The pattern with each class of characters replaced by one of them, and each escape by a letter. */
function outsideClasses(pattern: string): string {
  return withoutEscapedBackslashes(pattern)
    .replaceAll(/\\./g, 'x')
    .replaceAll(/\[\^?\]?[^\]]*\]/g, 'x')
}

const withoutEscapedBackslashes = (pattern: string): string => pattern.replaceAll('\\\\', 'x')

/** Walks the groups: one with repetitions or alternatives in it must not be repeated itself. */
function faultOfRepeats(pattern: string): string | null {
  const open: boolean[] = [] // for each open group: whether it can match the same text in several ways
  let closed = false // the same of the group that ends before this position
  let [repeats, optional] = [0, 0]
  const varies = (): void => {
    if (open.length) open[open.length - 1] = true
  }
  for (let at = 0; at < pattern.length; at++) {
    const [repeat, amount = ''] = /^([*+?]|\{\d+(?:,\d*)?\})\??/.exec(pattern.slice(at)) ?? []
    if (repeat !== undefined) {
      if (amount === '?' && ++optional > mostOptional)
        return `must have ${mostOptional} optional items at most`
      if (amount !== '?' && closed) return 'must not repeat a group with repetitions or alternatives in it'
      if (amount !== '?' && ++repeats > mostRepeats) return `must have ${mostRepeats} repetitions at most`
      const bounds = amount.match(/\d+/g) ?? []
      if (bounds.some((bound) => Number(bound) > longestRepeat))
        return `must not repeat anything more than ${longestRepeat} times`
      varies()
      at += repeat.length - 1
      closed = false
    } else if (pattern[at] === '(') {
      open.push(false)
      closed = false
      if (pattern.startsWith('?:', at + 1)) at += 2
    } else if (pattern[at] === ')') {
      closed = open.pop() ?? false
      if (closed) varies()
    } else {
      if (pattern[at] === '|') varies()
      closed = false
    }
  }
  return null
}

/** How a route matches requests; null matches everything. */
export interface Match {
  priority: number
  host_match: string | null
  listener_port: number | null
  path_match: string | null
  path_match_type: 'exact' | 'prefix' | 'regex'
  method: string | null
}

/**
 * Whether the first route takes every request that the second would match, so that the second never gets any. The
 * lower priority comes first; at equal priority the more specific route, so that only an equal one can hide it.
 */
export function hides(first: Match, second: Match): boolean {
  if (first.priority > second.priority) return false
  if (first.priority === second.priority) return isSame(first, second)
  return (
    coversHost(first, second) &&
    coversPath(first, second) &&
    covers(first.method, second.method) &&
    covers(first.listener_port, second.listener_port)
  )
}

const isSame = (a: Match, b: Match): boolean =>
  a.host_match === b.host_match &&
  a.listener_port === b.listener_port &&
  a.method === b.method &&
  a.path_match === b.path_match &&
  (a.path_match === null || a.path_match_type === b.path_match_type)

const covers = <T>(all: T | null, some: T | null): boolean => all === null || all === some

function coversHost({ host_match: all }: Match, { host_match: some }: Match): boolean {
  if (covers(all, some)) return true
  return all !== null && some !== null && all.startsWith('*.') && some.endsWith(all.slice(1))
}

/** A prefix ends at a segment: `/api` matches `/api` and `/api/x`, not `/apix`. */
function coversPath(all: Match, some: Match): boolean {
  if (all.path_match === null || (all.path_match === '/' && all.path_match_type === 'prefix')) return true
  if (some.path_match === null) return false
  if (all.path_match_type !== 'prefix' || some.path_match_type === 'regex')
    return all.path_match === some.path_match && all.path_match_type === some.path_match_type
  const folder = all.path_match.endsWith('/') ? all.path_match : `${all.path_match}/`
  return some.path_match === all.path_match || some.path_match.startsWith(folder)
}

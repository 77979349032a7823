import { isIPv4 } from 'node:net'
import { EngineRefused } from '../errors.ts'

// Checks of what tenants give, and how it is written where HAProxy reads a word in a language of its own.

const refuse = (what: string): never => {
  throw new EngineRefused(what)
}

/** Ids become names of sections and files. */
export const anId = (id: string): string =>
  /^[A-Za-z0-9][A-Za-z0-9-]{0,35}$/.test(id) ? id : refuse('An id is not valid')

export const aCount = (value: number, from: number, to: number, what: string): number =>
  Number.isInteger(value) && value >= from && value <= to
    ? value
    : refuse(`${what} must be a whole number from ${from} to ${to}`)

export const aPort = (port: number): number => aCount(port, 1, 65_535, 'A port')

/** 24 days: HAProxy's longest time. */
export const aTime = (seconds: number, what: string): string => `${aCount(seconds, 1, 2_000_000, what)}s`

export const anAddress = (address: string): string =>
  isIPv4(address) ? address : refuse('A target’s address must be IPv4')

const label = /^[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?$/

/** A host name in lower case. */
export function aHostName(name: string): string {
  const lower = name.toLowerCase()
  const isName = lower.length <= 253 && lower.split('.').every((part) => label.test(part))
  return isName ? lower : refuse('A host name is not valid')
}

const pathCharacters = /^\/[A-Za-z0-9._~!$&'()*+,;=:@/%-]{0,2047}$/

/** A path as it is in a request: percent-encoded. */
export function aPath(path: string, what = 'The path'): string {
  const isPath = pathCharacters.test(path) && !/%(?![0-9A-Fa-f]{2})/.test(path)
  return isPath ? path : refuse(`${what} must begin with / and be percent-encoded`)
}

export const aMethod = (method: string): string =>
  /^[A-Z]{1,20}$/.test(method) && method !== 'CONNECT' ? method : refuse('The method is not valid')

const token = /^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$/

// Those that frame a message or belong to one connection, and those that the load balancer itself vouches for.
const reserved = new Set(
  [
    'connection',
    'keep-alive',
    'te',
    'trailer',
    'transfer-encoding',
    'content-length',
    'upgrade',
    'expect',
  ].concat(['proxy-connection', 'http2-settings', 'host', 'forwarded', 'x-real-ip', 'x-request-id']),
)

/** A header that a route may change, in lower case. */
export function aHeader(name: string): string {
  const lower = name.toLowerCase()
  if (!token.test(name)) refuse('A header name is not valid')
  if (reserved.has(lower) || lower.startsWith('x-forwarded-')) refuse(`The header ${lower} cannot be changed`)
  return lower
}

export function aHeaderValue(value: string): string {
  const isText = /^[\x21-\x7e]([\x20-\x7e]{0,4094}[\x21-\x7e])?$/.test(value)
  return isText
    ? value
    : refuse('A header value must be 1 to 4096 ASCII characters, without spaces around it')
}

/** Text for a word that HAProxy reads as a format. */
export const asFormat = (text: string): string => text.replaceAll('%', '%%')

const longestRegex = 512
/** PCRE2 gives up after so many steps, and the path does not match: some milliseconds of one thread. */
const stepsOfRegex = 20_000

/**
 * A regular expression in the syntax that JavaScript and PCRE2 share, with a limit on its steps. `haproxy -c` compiles
 * it.
 */
export function aRegex(source: string): string {
  if (source.length === 0 || source.length > longestRegex)
    refuse(`A regular expression has 1 to ${longestRegex} characters`)
  if (!/^[\x20-\x7e]*$/.test(source)) refuse('A regular expression must have only ASCII characters')
  if (/\(\*|\\[1-9gkQECKRXGZ]|\(\?[^:]/.test(source))
    refuse('A regular expression cannot have back references, look-around or options')
  if (
    [...source.matchAll(/\{(\d*),?(\d*)\}/g)].some(([, low, high]) => Number(low) > 200 || Number(high) > 200)
  )
    refuse('A regular expression can repeat a part at most 200 times')
  if (!compiles(source)) refuse('The regular expression is not valid')
  return `(*LIMIT_MATCH=${stepsOfRegex})(?:${source})`
}

function compiles(source: string): boolean {
  try {
    return new RegExp(source, 'u') instanceof RegExp
  } catch {
    return false
  }
}

/** A plain text as a regular expression. */
export const asRegex = (text: string): string => text.replaceAll(/[^A-Za-z0-9/_-]/g, String.raw`\$&`)

const urlCharacters = /^[A-Za-z0-9._~:/?#[\]@!$&'()*+,;=%-]{1,2048}$/

/**
 * The target of a redirect as a format: `{host}` and `{path}` become the request's host name, and its path with the
 * query; `{http_port}` and `{https_port}` become what the frontend has noted.
 */
export function aRedirectUrl(url: string): string {
  const plain = url
    .replaceAll('{host}', 'host')
    .replaceAll('{path}', '/path')
    .replaceAll(/(?<=:\/\/[^/?#@]+)\{https?_port\}/g, ':1')
  const isLocal = plain.startsWith('/') && !plain.startsWith('//')
  const begins = /^(https?:\/\/[^/?#@]+([/?#]|$)|\/)/i.test(plain) && !url.startsWith('{')
  if (!urlCharacters.test(plain) || !begins || !URL.canParse(isLocal ? `http://host${plain}` : plain))
    refuse('The URL of a redirect must begin with https://, http:// or /')
  return asFormat(url)
    .replaceAll('{host}', '%[var(txn.host)]')
    .replaceAll('{path}', '%[pathq]')
    .replaceAll(/\{(https?_port)\}/g, '%[var(txn.$1)]')
}

/** Also refuses a network-path reference that a path would make of `/{path}`. */
export const aRedirectStatus = (status: number): number =>
  aCount(status, 300, 399, 'The status of a redirect')

export const aToken = (text: string): string =>
  /^[A-Za-z0-9_-]{1,256}$/.test(text) ? text : refuse('The token of a challenge is not valid')

export const aKeyAuthorization = (text: string): string =>
  /^[A-Za-z0-9_.-]{1,512}$/.test(text) ? text : refuse('The answer of a challenge is not valid')

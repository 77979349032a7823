import { lookup as resolve } from 'node:dns/promises'
import { isIP, type LookupFunction } from 'node:net'
import type { Readable } from 'node:stream'
import { callbackify } from 'node:util'
import ipaddr from 'ipaddr.js'
import { Agent, buildConnector, type Dispatcher, errors, request } from 'undici'

// The only way to a URL that a tenant gives. Addresses are checked as literals, as answers of a lookup, and once more
// when the connection stands, before a byte is sent: a name that leads elsewhere the second time is of no use.

/** The URL leads to an address that is not public. It says the same whatever is there. */
export class AddressNotAllowed extends Error {
  override readonly name = 'AddressNotAllowed'
  readonly code = 'address_not_allowed'
  readonly permanent = true

  constructor() {
    super('The URL does not lead to a public address')
  }
}

/** No answer: in plain words, without addresses. */
export class NoAnswer extends Error {
  override readonly name = 'NoAnswer'
  readonly code = 'no_answer'
  readonly permanent = false
  /** The request may have arrived, and may still be worked on. */
  readonly timedOut: boolean

  constructor(message: string, { cause, timedOut = false }: { cause?: unknown; timedOut?: boolean } = {}) {
    super(message, { cause })
    this.timedOut = timedOut
  }
}

export interface OutboundRequest {
  method: 'GET' | 'POST' | 'PUT' | 'PATCH' | 'DELETE'
  headers?: Record<string, string>
  body?: string | Uint8Array
  /** Ends the request early. */
  signal?: AbortSignal
  /** For all of it, redirects and the body included. */
  withinMs: number
  /** Of the body; the rest is not read. */
  mostBytes: number
  /** How many redirects to follow, within the same origin and for GET alone. Without it, none. */
  redirects?: number
}

export interface OutboundAnswer {
  status: number
  headers: Record<string, string | string[] | undefined>
  body: Buffer
}

export interface OutboundStreamRequest {
  method: 'GET' | 'POST'
  headers: Record<string, string>
  body?: string | Uint8Array
  /** Until the answer's head is here. */
  headWithinMs: number
  /** Between two pieces of the body. */
  pieceWithinMs: number
  /** Ends the request, and the body. */
  signal: AbortSignal
}

export interface OutboundStream {
  status: number
  headers: Record<string, string | string[] | undefined>
  /** Read it to its end, or destroy it. */
  body: Readable
}

export interface Outbound {
  /** The reason why a URL is refused before anything is looked up; null if there is none. */
  faultOf(url: string): 'not_a_url' | 'address_not_allowed' | null
  /** Whether an operator allows this target although it is private. */
  isExempt(url: string): boolean
  /** Throws AddressNotAllowed and NoAnswer. Any status is an answer. */
  fetch(url: string, asked: OutboundRequest): Promise<OutboundAnswer>
  /** The same guard for an agent of another file. `passed` is told of each step of a connection that has succeeded. */
  connector(passed: (step: 'dns' | 'connect') => void): buildConnector.connector
  /**
   * The same for a body that is read as it comes. Its connections are kept for a while: each was checked when it stood,
   * and stays with the server that it reached.
   */
  stream(url: string, asked: OutboundStreamRequest): Promise<OutboundStream>
  close(): Promise<void>
}

type Lookup = (name: string) => Promise<{ address: string; family: number }[]>

/**
 * `allowed`: private targets that an operator allows, as exact `host:port` of URLs. No proxy of the environment is
 * used, since its addresses could not be checked, and `fetch` keeps no connection, so each request is checked anew.
 */
export function makeOutbound({
  allowed = [],
  lookup = (name) => resolve(name, { all: true }),
}: {
  allowed?: string[]
  lookup?: Lookup
}): Outbound {
  const exempt = new Set(allowed.map((target) => target.toLowerCase()))
  const connect = guard(exempt, lookup)
  const agent = new Agent({ connect, pipelining: 0 })
  const keeping = new Agent({ connect, pipelining: 1, keepAliveTimeout: keptMs, keepAliveMaxTimeout: keptMs })
  const isAllowed = ({ host, port, protocol }: URL): boolean =>
    exempt.has(port ? host : `${host}:${portOf(protocol)}`)
  const isRefused = (url: URL): boolean => isPrivateLiteral(bare(url.hostname)) && !isAllowed(url)

  async function fetch(url: URL, asked: OutboundRequest, signal: AbortSignal): Promise<OutboundAnswer> {
    if (isRefused(url)) throw new AddressNotAllowed()
    const { method, headers = {}, body = null, mostBytes, redirects = 0 } = asked
    const answer = await request(url, { method, headers, body, signal, dispatcher: agent })
    const next = method === 'GET' ? placeOf(answer, url) : null
    if (next && redirects > 0 && next.origin === url.origin) {
      await answer.body.dump()
      return fetch(next, { ...asked, redirects: redirects - 1 }, signal)
    }
    return {
      status: answer.statusCode,
      headers: answer.headers,
      body: await beginningOf(answer.body, mostBytes),
    }
  }

  return {
    faultOf(text) {
      const url = webUrl(text)
      if (!url) return 'not_a_url'
      return isRefused(url) ? 'address_not_allowed' : null
    },
    isExempt(text) {
      const url = webUrl(text)
      return url !== null && isAllowed(url)
    },
    async fetch(text, asked) {
      const url = webUrl(text)
      if (!url) throw new NoAnswer('It is not an http or https URL')
      const late = AbortSignal.timeout(asked.withinMs)
      const signal = asked.signal ? AbortSignal.any([late, asked.signal]) : late
      try {
        return await fetch(url, asked, signal)
      } catch (error) {
        throw asNoAnswer(error, signal)
      }
    },
    connector: (passed) => guard(exempt, lookup, passed),
    async stream(text, { method, headers, body = null, headWithinMs, pieceWithinMs, signal }) {
      const url = webUrl(text)
      if (!url) throw new NoAnswer('It is not an http or https URL')
      if (isRefused(url)) throw new AddressNotAllowed()
      const within = { headersTimeout: headWithinMs, bodyTimeout: pieceWithinMs }
      try {
        const answer = await request(url, { method, headers, body, signal, ...within, dispatcher: keeping })
        // A body that nobody reads on must not end the process.
        answer.body.on('error', () => {})
        return { status: answer.statusCode, headers: answer.headers, body: answer.body }
      } catch (error) {
        throw asNoAnswer(error, signal)
      }
    },
    async close() {
      await Promise.all([agent.destroy(), keeping.destroy()])
    },
  }
}

/** Shorter than servers keep them, most of which do for a minute. */
const keptMs = 30_000

/** Connects to public addresses alone, unless the target is exempt. */
function guard(
  exempt: ReadonlySet<string>,
  resolveName: Lookup,
  passed: (step: 'dns' | 'connect') => void = () => {},
): buildConnector.connector {
  const lookup: Lookup = async (name) => {
    const found = await resolveName(name)
    passed('dns')
    return found
  }
  const checked: Lookup = async (name) => {
    const found = await lookup(name)
    // All of them: a public one beside a private one is an attempt.
    if (!found.every(({ address }) => isPublic(address))) throw new AddressNotAllowed()
    return found
  }
  const guarded = buildConnector({ lookup: lookupOf(checked) })
  const free = buildConnector({ lookup: lookupOf(lookup) })
  // Set explicitly, since the environment could turn verification off.
  const secure = buildConnector({ allowH2: false, maxCachedSessions: 0, rejectUnauthorized: true })

  return (options, callback) => {
    const { protocol, hostname } = options
    const host = bare(hostname)
    const port = options.port || portOf(protocol)
    const isExempt = exempt.has(`${isIP(host) === 6 ? `[${host}]` : host}:${port}`)
    if (!isExempt && isPrivateLiteral(host)) return callback(new AddressNotAllowed(), null)
    const plain = { ...options, protocol: 'http:', port }
    return (isExempt ? free : guarded)(plain, (error, socket) => {
      if (error) return callback(error, null)
      if (!isExempt && !isPublic(socket.remoteAddress ?? '')) {
        socket.destroy()
        return callback(new AddressNotAllowed(), null)
      }
      passed('connect')
      if (protocol !== 'https:') return callback(null, socket)
      return secure({ ...options, port, httpSocket: socket }, callback)
    })
  }
}

/** In the form of Node's `net`. */
function lookupOf(lookup: Lookup): LookupFunction {
  const called = callbackify(lookup)
  return (name, { all }, callback) =>
    called(name, (error, found) => {
      if (error) return callback(error, '')
      if (all) return callback(null, found)
      const [first] = found
      return callback(first ? null : new Error('no address'), first?.address ?? '', first?.family)
    })
}

// Azure's metadata, which is a public address everywhere else.
const metadata = new Set(['168.63.129.16'])
const globalUnicast = ipaddr.IPv6.parseCIDR('2000::/3')

/** Also not: IPv4 in IPv6, whether mapped, translated (NAT64) or tunnelled. */
export function isPublic(address: string): boolean {
  if (isIP(address) === 0 || metadata.has(address)) return false
  const parsed = ipaddr.parse(address)
  if (parsed.range() !== 'unicast') return false
  return parsed.kind() === 'ipv4' || (parsed as ipaddr.IPv6).match(globalUnicast)
}

const isPrivateLiteral = (host: string): boolean => isIP(host) !== 0 && !isPublic(host)

/** Without the brackets of IPv6. */
const bare = (hostname: string): string => hostname.replaceAll(/^\[|\]$/g, '')
const portOf = (protocol: string): string => (protocol === 'https:' ? '443' : '80')

/** Its host is in one form: decimal, octal and hexadecimal IPv4 addresses become dotted ones. */
function webUrl(text: string): URL | null {
  const url = URL.parse(text)
  const isWeb = url?.protocol === 'http:' || url?.protocol === 'https:'
  return isWeb && !url.username && !url.password ? url : null
}

/** Where an answer redirects to. */
function placeOf({ statusCode, headers }: Dispatcher.ResponseData, from: URL): URL | null {
  const { location } = headers
  if (![301, 302, 303, 307, 308].includes(statusCode) || typeof location !== 'string') return null
  return URL.parse(location, from.href)
}

async function beginningOf(body: AsyncIterable<Buffer>, mostBytes: number): Promise<Buffer> {
  const chunks: Buffer[] = []
  let length = 0
  for await (const chunk of body) {
    chunks.push(chunk)
    length += chunk.length
    if (length >= mostBytes) break // leaving the loop closes the connection
  }
  return Buffer.concat(chunks).subarray(0, mostBytes)
}

function asNoAnswer(error: unknown, signal: AbortSignal): AddressNotAllowed | NoAnswer {
  if (error instanceof AddressNotAllowed) return error
  const timedOut = signal.aborted || error instanceof errors.HeadersTimeoutError
  return new NoAnswer(whyNone(error, timedOut), { cause: error, timedOut })
}

function whyNone(error: unknown, timedOut: boolean): string {
  if (timedOut || error instanceof errors.ConnectTimeoutError) return 'It did not answer in time'
  const { code = '' } = error as NodeJS.ErrnoException
  if (code === 'ENOTFOUND' || code === 'EAI_AGAIN') return 'Its name has no address'
  if (code === 'ECONNREFUSED') return 'It refuses connections'
  if (/^(ERR_TLS|CERT|DEPTH_ZERO|SELF_SIGNED|UNABLE_TO|ERR_SSL|EPROTO)/.test(code))
    return `Its TLS certificate or protocol is not accepted (${code})`
  return 'The connection ended without an answer'
}

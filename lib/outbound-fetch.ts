import { isIP } from 'node:net'
import { Agent, type Dispatcher, fetch as fetchBy, type RequestInit as Init } from 'undici'
import { AddressNotAllowed, type Outbound } from './outbound.ts'

// A fetch for clients of others, behind the guard of lib/outbound.ts. It streams, and says how far a request came.

export type FetchStep = 'policy' | 'dns' | 'connect' | 'tls' | 'http'

/** The request leads to another origin than the one that it is for. */
export class OtherOrigin extends Error {
  override readonly name = 'OtherOrigin'
}

/** The bodies are larger than allowed. */
export class TooLarge extends Error {
  override readonly name = 'TooLarge'
}

export interface WatchedFetch {
  fetch(this: void, url: string | URL, init?: RequestInit): Promise<Response>
  /** Ms that the first request spent in each step that it has passed. */
  readonly spent: ReadonlyMap<FetchStep, number>
  /** Where the last request stopped, if it had no answer. */
  readonly fault: { step: FetchStep; error: unknown } | null
  /** How far a request is that has no answer yet; null: there is none. */
  readonly waiting: FetchStep | null
  /** The last answer. */
  readonly answer: { status: number; headers: Headers } | null
  readonly tooLarge: boolean
  /** Lets further requests be made for so long, also after the end of `signal`. */
  extend(ms: number): void
  /** Ends all connections. */
  close(): Promise<void>
}

export interface Watched {
  /** No request leaves it. */
  origin: string
  /** Go with each request: a credential among them goes nowhere else than to the origin. */
  headers: Record<string, string>
  /** Of all bodies together, as they are after decompression. */
  mostBytes: number
  /** Ends everything. */
  signal: AbortSignal
}

/** Redirects are not followed: they are answers. Connections are kept until `close`. */
export function watchFetch(guard: Pick<Outbound, 'connector'>, asked: Watched): WatchedFetch {
  const spent = new Map<FetchStep, number>()
  let step: FetchStep = 'http'
  let fault: WatchedFetch['fault'] = null
  let answer: WatchedFetch['answer'] = null
  let connected = 0
  let received = 0
  let open = 0
  let end = asked.signal

  const pass = (passed: FetchStep, ms: number): void => {
    if (!spent.has(passed)) spent.set(passed, ms)
  }

  const agent = new Agent({
    headersTimeout: 0, // `signal` ends it
    bodyTimeout: 0,
    connect(options, callback) {
      const begun = performance.now()
      let since = begun
      const passed = (one: 'dns' | 'connect' | 'tls'): void => {
        const now = performance.now()
        pass(one, now - since)
        since = now
      }
      step = isIP(options.hostname.replaceAll(/^\[|\]$/g, '')) ? 'connect' : 'dns'
      const connect = guard.connector((one) => {
        passed(one)
        step = one === 'dns' ? 'connect' : options.protocol === 'https:' ? 'tls' : 'http'
      })
      connect(options, (error, socket) => {
        if (error) {
          fault = { step: error instanceof AddressNotAllowed ? 'policy' : step, error }
          return callback(error, null)
        }
        if (step === 'tls') passed('tls')
        step = 'http'
        connected += performance.now() - begun
        return callback(null, socket)
      })
    },
  })

  function bounded(body: ReadableStream<Uint8Array>): ReadableStream<Uint8Array> {
    const count = new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        received += chunk.length
        if (received > asked.mostBytes) controller.error(new TooLarge('The answers are too large'))
        else controller.enqueue(chunk)
      },
    })
    return body.pipeThrough(count)
  }

  async function fetch(to: string | URL, init: RequestInit = {}): Promise<Response> {
    const url = new URL(to)
    fault = null
    if (url.origin !== asked.origin) {
      const error = new OtherOrigin('The request leads to another origin')
      fault = { step: 'policy', error }
      throw error
    }
    const headers = new Headers(init.headers)
    headers.set('user-agent', 'Keelson')
    for (const [name, value] of Object.entries(asked.headers)) headers.set(name, value)
    const signal = init.signal ? AbortSignal.any([init.signal, end]) : end
    const begun = performance.now()
    const before = connected
    open++
    try {
      const given = { ...init, headers: [...headers], signal, redirect: 'manual', dispatcher: agent }
      const got = await fetchBy(url, given as Init & { dispatcher: Dispatcher })
      pass('http', Math.max(0, performance.now() - begun - (connected - before)))
      answer = { status: got.status, headers: new Headers([...got.headers]) }
      const { status } = got
      const body = got.body as ReadableStream<Uint8Array> | null
      return new Response(body && bounded(body), { status, headers: answer.headers })
    } catch (error) {
      fault ??= { step, error }
      throw error
    } finally {
      open--
    }
  }

  return {
    fetch,
    spent,
    get fault() {
      return fault
    },
    get waiting() {
      return open > 0 ? step : null
    },
    get answer() {
      return answer
    },
    get tooLarge() {
      return received > asked.mostBytes
    },
    extend(ms) {
      end = AbortSignal.timeout(ms)
    },
    close: () => agent.destroy(),
  }
}

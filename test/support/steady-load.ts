import { once } from 'node:events'
import { Agent, type IncomingMessage, request } from 'node:http'
import { Agent as TlsAgent, request as tlsRequest } from 'node:https'
import { setTimeout as delay } from 'node:timers/promises'
import { atEndOfFile } from './end-of-file.ts'

/** One request: when it was sent and ended, in ms since the epoch, and its status. Status 0: no answer. */
export interface Sent {
  at: number
  ended: number
  status: number
  error: string | null
  url: string
}

const beatMs = 20
const patienceMs = 60_000
// A machine that cannot serve the rate gets fewer requests, not ever more connections.
const openAtMost = 200

/**
 * Sends GET requests at a steady rate, however long their answers take. Half of them open a connection of their own, the
 * others use kept ones.
 */
export class SteadyLoad {
  readonly sent: Sent[] = []
  readonly #urls: string[]
  readonly #perSec: number
  readonly #kept = { http: new Agent({ keepAlive: true }), https: new TlsAgent({ keepAlive: true }) }
  readonly #open = new Set<Promise<void>>()
  readonly #ended = new AbortController()
  #done: Promise<void>

  constructor(urls: string[], perSec: number) {
    this.#urls = urls
    this.#perSec = perSec
    this.#done = this.#run()
    atEndOfFile(() => this.end())
  }

  /** Stops sending, and resolves with all requests once they have ended. */
  async end(): Promise<Sent[]> {
    this.#ended.abort()
    await this.#done
    await Promise.all(this.#open)
    for (const agent of Object.values(this.#kept)) agent.destroy()
    return this.sent
  }

  async #run(): Promise<void> {
    const begun = performance.now()
    for (let count = 0; !this.#ended.signal.aborted; ) {
      const due = ((performance.now() - begun) / 1000) * this.#perSec
      // A client that was held up by the machine does not make up for all of it at once.
      if (due - count > this.#perSec) count = Math.floor(due - this.#perSec)
      for (; count < due; count++) if (this.#open.size < openAtMost) this.#send(count)
      await delay(beatMs)
    }
  }

  #send(count: number): void {
    const url = this.#urls[count % this.#urls.length] ?? ''
    const isKept = Math.floor(count / this.#urls.length) % 2 === 0
    const ended = this.#ask(url, isKept)
    this.#open.add(ended)
    void ended.finally(() => this.#open.delete(ended))
  }

  async #ask(url: string, isKept: boolean): Promise<void> {
    const one: Sent = { at: Date.now(), ended: 0, status: 0, error: null, url }
    this.sent.push(one)
    try {
      one.status = await this.#get(url, isKept)
    } catch (error) {
      one.error = (error as NodeJS.ErrnoException).code ?? String(error)
    }
    one.ended = Date.now()
  }

  async #get(url: string, isKept: boolean): Promise<number> {
    const isTls = url.startsWith('https:')
    const agent = isKept ? this.#kept[isTls ? 'https' : 'http'] : false
    const options = { agent, timeout: patienceMs, rejectUnauthorized: false }
    const asked = (isTls ? tlsRequest : request)(url, options as object)
    asked.on('timeout', () => asked.destroy(new Error('timeout')))
    asked.end()
    try {
      const [response] = (await once(asked, 'response')) as [IncomingMessage]
      response.resume()
      await once(response, 'end')
      return response.statusCode ?? 0
    } catch (error) {
      // A server may close a kept connection while a request is on its way: clients repeat it (RFC 9110, 9.2.2).
      const wasClosed = ['ECONNRESET', 'EPIPE'].includes((error as NodeJS.ErrnoException).code ?? '')
      if (asked.reusedSocket && wasClosed) return this.#get(url, false)
      throw error
    }
  }
}

import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import type { IncomingMessage } from 'node:http'
import { request } from 'node:https'
import { Unavailable } from '../../lib/problem.ts'

/** The one host that the mail receiver ever visits, whatever a message says. */
export interface PinnedHost {
  /** The URL, if it leads to this host, by https and without credentials; else null. */
  urlOf(text: string): URL | null
  /**
   * What is at a URL of this host; null where it says anything but 200, redirects included, or too much.
   * Throws Unavailable when it cannot be reached, is not who it should be, or fails itself: asking again may help.
   */
  read(url: URL): Promise<string | null>
}

// SNS waits 15 s for an answer of ours; a certificate has some 2 KiB.
const withinMs = 5_000
const mostBytes = 64 * 1024

/** `host`: a host name, with a port where it is not 443. `caFile`: who signs for it, PEM; else those Node trusts. */
export function makePinnedHost(host: string, caFile?: string): PinnedHost {
  const pinned = new URL(`https://${host}`).host
  return {
    urlOf(text) {
      const url = URL.parse(text)
      const isHere = url?.protocol === 'https:' && url.host === pinned && !url.username && !url.password
      return isHere ? url : null
    },
    async read(url) {
      if (url.protocol !== 'https:' || url.host !== pinned)
        throw new Error(`${url.host} is not the pinned host`)
      try {
        // Read anew each time, so that it can be renewed; it is seldom needed.
        const ca = caFile === undefined ? {} : { ca: await readFile(caFile) }
        const { status, body } = await get(url, ca)
        if (status === 429 || status >= 500) throw new Error(`${pinned} answers ${status}`)
        return status === 200 ? body : null
      } catch (error) {
        throw new Unavailable('The notification topic does not answer', error)
      }
    },
  }
}

async function get(url: URL, ca: { ca?: Buffer }): Promise<{ status: number; body: string | null }> {
  const signal = AbortSignal.timeout(withinMs)
  // Said aloud, since the environment could switch it off. A connection of its own is checked each time.
  const sent = request(url, { ...ca, rejectUnauthorized: true, agent: false, signal })
  const answered = once(sent, 'response') as Promise<[IncomingMessage]>
  sent.on('error', () => {}) // one that comes after the head: reading the body throws it as well
  sent.end()
  const [response] = await answered
  const status = response.statusCode ?? 0
  let body = ''
  for await (const chunk of response.setEncoding('latin1') as AsyncIterable<string>) {
    body += chunk
    if (body.length > mostBytes) return { status, body: null } // leaving the loop closes the connection
  }
  return { status, body }
}

import { once } from 'node:events'
import { readFile } from 'node:fs/promises'
import type { IncomingMessage } from 'node:http'
import { request } from 'node:https'
import { Unavailable } from '../../lib/problem.ts'

/** The only host that the mail receiver connects to, whatever a message says. */
export interface PinnedHost {
  /** The URL if it is an https URL of this host without credentials; else null. */
  urlOf(text: string): URL | null
  /**
   * The body at a URL of this host; null if the status is not 200 (redirects included) or the body is too large.
   * Throws Unavailable if the host cannot be reached, its certificate is wrong, or it answers 429 or 5xx: retry later.
   */
  read(url: URL): Promise<string | null>
}

// SNS waits 15 s for our answer; a certificate has about 2 KiB.
const withinMs = 5_000
const mostBytes = 64 * 1024

/** `host`: a host name, with a port unless it is 443. `caFile`: its CAs (PEM); without it, those that Node trusts. */
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
        // Read for each request, so that the file can be renewed; requests are rare.
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
  // Set explicitly, since the environment could turn verification off. Without an agent, each connection is verified.
  const sent = request(url, { ...ca, rejectUnauthorized: true, agent: false, signal })
  const answered = once(sent, 'response') as Promise<[IncomingMessage]>
  sent.on('error', () => {}) // an error after the headers: reading the body throws it as well
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

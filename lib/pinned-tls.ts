import { X509Certificate } from 'node:crypto'
import type { IncomingMessage } from 'node:http'
import { Agent, request, type RequestOptions } from 'node:https'
import { addAbortSignal, type Duplex, Readable } from 'node:stream'
import { connect } from 'node:tls'

// Connections to a server that is known by its certificate alone: not by a name, and by no authority.

/** What both ends speak. */
export const pinnedTls = { minVersion: 'TLSv1.3', ALPNProtocols: ['http/1.1'] } as const

const connectsWithinMs = 10_000
/** For an answer to a request whose body is no stream: a host answers only after its engine has. */
const answersWithinMs = 300_000
/**
 * How often a server that has not answered yet is asked for another connection: a network that drops packets, or a machine that
 * is frozen, closes none.
 */
const looksEveryMs = 5_000
// Detects that the server has vanished from an idle connection.
const probeEveryMs = 30_000

type Connected = (error: Error | null, socket: Duplex) => void

/** Connects to the server that shows the certificate `ca` (PEM), and calls `connected` once it has proved to have its key. */
function connectPinned({ host, port, ca }: RequestOptions, connected?: Connected): void {
  const pinned = new X509Certificate(ca as string)
  const socket = connect({
    host: host ?? '',
    port: Number(port),
    ...pinnedTls,
    ca: pinned.toString(),
    rejectUnauthorized: true, // set explicitly, since the environment could turn verification off
    // Called for each connection, since no session is resumed. OpenSSL would also take what the certificate has signed.
    checkServerIdentity: (_name, { raw }) =>
      raw.equals(pinned.raw) ? undefined : new Error('The server presents another certificate'),
  })
  const failed = (error: Error) => connected?.(error, socket)
  const tooLate = () => socket.destroy(new Error('The server does not finish its TLS handshake'))
  socket.setNoDelay(true)
  socket.setTimeout(connectsWithinMs, tooLate)
  socket.once('error', failed)
  socket.once('secureConnect', () => {
    socket.off('error', failed)
    socket.setTimeout(0, tooLate)
    socket.setKeepAlive(true, probeEveryMs)
    connected?.(null, socket)
  })
}

/**
 * Requests with this agent need `ca`: the one certificate (PEM) that their server must show. A request gets its connection
 * only once the server has shown it and proved to have its key, so that any other server is sent nothing.
 */
class PinnedAgent extends Agent {
  // Node keeps connections by their options, `ca` among them: one that was opened for a certificate serves no other.
  override createConnection(options: RequestOptions, connected?: Connected): null {
    connectPinned(options, connected)
    return null
  }
}

const kept = new PinnedAgent({ keepAlive: true, keepAliveMsecs: probeEveryMs })
/** A new connection for each request: one whose body is a stream cannot be sent again. */
const unshared = new PinnedAgent({ keepAlive: false })

/** Options of a WebSocket to the server with this certificate. */
export const pinnedSocket = (certificate: string) => ({ ca: certificate, agent: unshared })

export interface PinnedRequest {
  url: URL
  /** PEM. */
  certificate: string
  method: string
  headers: Record<string, string>
  body?: Readable | Uint8Array
  signal: AbortSignal
}

/**
 * Sends a request to the server with this certificate. The answer is not read yet, and no redirect is followed. A request
 * whose body is no stream is sent twice if the server closes a kept connection at the same moment: its token is good once.
 * Rejects with whatever broke the connection or the body, and with the signal's reason.
 */
export const sendPinned = (asked: PinnedRequest): Promise<IncomingMessage> =>
  send(asked, asked.body instanceof Readable ? unshared : kept)

const send = (asked: PinnedRequest, agent: PinnedAgent): Promise<IncomingMessage> =>
  new Promise((resolve, reject) => {
    const { url, certificate: ca, method, headers, body, signal } = asked
    const isStream = body instanceof Readable
    const waiting = isStream ? signal : AbortSignal.any([signal, AbortSignal.timeout(answersWithinMs)])
    const sent = request(url, { method, headers, ca, agent }, (answer) => {
      stopLooking()
      waiting.removeEventListener('abort', giveUp)
      answer.on('error', () => {}) // Node drops an error to which nobody listens, and a later reader would miss it
      resolve(addAbortSignal(signal, answer))
    })
    const end = (error: Error): void => {
      reject(error)
      sent.destroy()
    }
    const stopLooking = isStream ? () => {} : lookFor(url, ca, end)
    // Rejects by itself: the request tells of its end only when there is a connection.
    const giveUp = (): void => end(waiting.reason as Error)
    // Does not destroy the request, since an answer that came before may not be read yet.
    sent.on('error', (error: NodeJS.ErrnoException) => {
      const isStale = sent.reusedSocket && ['ECONNRESET', 'EPIPE'].includes(error.code ?? '')
      if (isStale && !waiting.aborted) resolve(send(asked, unshared))
      else reject(error)
    })
    sent.once('close', () => {
      stopLooking()
      waiting.removeEventListener('abort', giveUp)
    })
    if (waiting.aborted) giveUp()
    else waiting.addEventListener('abort', giveUp, { once: true })
    if (isStream) body.on('error', end).pipe(sent)
    else sent.end(body)
  })

/** Calls `gone` once the server does not take another connection. Returns a function that ends this. */
function lookFor(url: URL, ca: string, gone: (error: Error) => void): () => void {
  const host = url.hostname.replace(/^\[|\]$/g, '') // of an IPv6 address
  let timer = setTimeout(look, looksEveryMs)
  let isOver = false
  function look(): void {
    connectPinned({ host, port: url.port, ca }, (error, socket) => {
      socket.destroy()
      if (isOver) return
      if (error) gone(error)
      else timer = setTimeout(look, looksEveryMs)
    })
  }
  return () => {
    isOver = true
    clearTimeout(timer)
  }
}

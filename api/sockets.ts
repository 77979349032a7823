import type { IncomingMessage } from 'node:http'
import type { WebSocket } from 'ws'
import { Problem } from '../lib/problem.ts'
import { closeCodes, passMessages } from '../lib/websockets.ts'
import { isSocket, type Operation, successOf } from './operation.ts'
import { whileAllowed } from './still-allowed.ts'

// What all WebSockets share.

/** A handler's result, called once the socket is open. */
export type ServeSocket = (client: WebSocket) => void

// Proxies close connections that are silent for a minute or so.
const pingEveryMs = 30_000
const pongsMissed = 3

/** Tells which paths have a WebSocket. */
export function socketPaths(operations: Operation[]): (path: string) => boolean {
  const patterns = operations
    .filter((operation) => isSocket(successOf(operation).body))
    .map(({ path }) => new RegExp(`^${path.replaceAll(/\{\w+\}/g, '[^/]+')}$`))
  return (path) => patterns.some((pattern) => pattern.test(path))
}

/**
 * Refuses pages of other origins, as CORS does for HTTP: browsers do not keep them from connecting. Such a page would
 * also need a token.
 */
export function checkOrigin(
  { headers }: IncomingMessage,
  settings: { KEELSON_API_URL: string; KEELSON_CORS_ORIGINS: string[] },
): void {
  const allowed = [new URL(settings.KEELSON_API_URL).origin, ...settings.KEELSON_CORS_ORIGINS]
  if (headers.origin === undefined || allowed.includes(headers.origin)) return
  throw new Problem(403, 'origin_denied', 'This origin is not allowed to connect')
}

/** Serves a client until it stops answering pings or `stillAllowed` throws a 401 or 403. */
export const attend =
  (serve: ServeSocket, stillAllowed: () => Promise<void>): ServeSocket =>
  (client) => {
    let missed = 0
    client.on('pong', () => (missed = 0))
    client.on('message', () => (missed = 0))
    client.on('error', () => {}) // `close` follows
    const pings = setInterval(() => {
      // A client that has not read everything sent cannot have seen a ping.
      if (client.bufferedAmount > 0) return
      // While the client is paused its answers are not read; if it has gone, sending the ping fails.
      if (!client.isPaused && missed++ >= pongsMissed) client.terminate()
      else client.ping()
    }, pingEveryMs)
    whileAllowed(client, stillAllowed, ({ status }) => {
      const reason = status === 401 ? 'the token has ended' : 'the permission was taken away'
      client.close(closeCodes.notAllowed, reason)
    })
    client.once('close', () => clearInterval(pings))
    serve(client)
  }

/** Joins a client with the paused socket of a host, until one of them closes. */
export function join(client: WebSocket, host: WebSocket): void {
  passMessages(client, host)
  passMessages(host, client)
  client.once('close', () => host.terminate())
  host.once('close', (code, reason) => {
    client.removeAllListeners('message')
    client.resume() // to read its close frame
    if (sayable.has(code)) client.close(code, reason)
    else client.close(closeCodes.failed, 'the host has gone')
  })
  if (host.readyState === host.OPEN) host.resume()
  else client.close(closeCodes.failed, 'the host has gone')
}

/** The close codes to pass on. Other codes only mean that a connection broke. */
const sayable = new Set<number>(Object.values(closeCodes))

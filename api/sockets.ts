import type { IncomingMessage } from 'node:http'
import type { WebSocket } from 'ws'
import { Problem } from '../lib/problem.ts'
import { closeCodes, passMessages } from '../lib/websockets.ts'
import { isSocket, type Operation, successOf } from './operation.ts'

// What is done for every WebSocket, and what is no part of HTTP.

/** What a handler returns: it is called once the socket is open. */
export type ServeSocket = (client: WebSocket) => void

// What was taken away must not live on for long.
const checkEveryMs = 15_000
// Proxies close what is silent for a minute or so.
const pingEveryMs = 30_000
const pongsMissed = 3

/** Which paths have one. */
export function socketPaths(operations: Operation[]): (path: string) => boolean {
  const patterns = operations
    .filter((operation) => isSocket(successOf(operation).body))
    .map(({ path }) => new RegExp(`^${path.replaceAll(/\{\w+\}/g, '[^/]+')}$`))
  return (path) => patterns.some((pattern) => pattern.test(path))
}

/**
 * Refuses other origins' pages, as CORS does for the rest. They could not send a token that they do not have; but no rule
 * of a browser itself keeps them from connecting.
 */
export function checkOrigin(
  { headers }: IncomingMessage,
  settings: { KEELSON_API_URL: string; KEELSON_CORS_ORIGINS: string[] },
): void {
  const allowed = [new URL(settings.KEELSON_API_URL).origin, ...settings.KEELSON_CORS_ORIGINS]
  if (headers.origin === undefined || allowed.includes(headers.origin)) return
  throw new Problem(403, 'origin_denied', 'This origin is not allowed to connect')
}

/** Serves a client for as long as it answers, and as long as `stillAllowed` does not throw a refusal. */
export const attend =
  (serve: ServeSocket, stillAllowed: () => Promise<void>): ServeSocket =>
  (client) => {
    let missed = 0
    client.on('pong', () => (missed = 0))
    client.on('message', () => (missed = 0))
    client.on('error', () => {}) // `close` follows
    const pings = setInterval(() => {
      // Who has not taken yet what was sent cannot have seen a ping.
      if (client.bufferedAmount > 0) return
      // Who is not listened to cannot answer; where he has gone, the ping itself finds out.
      if (!client.isPaused && missed++ >= pongsMissed) client.terminate()
      else client.ping()
    }, pingEveryMs)
    const checks = setInterval(() => {
      stillAllowed().catch((error: unknown) => {
        // While the database is away nothing is known: the next time it is asked again.
        if (!(error instanceof Problem) || ![401, 403].includes(error.status)) return
        const reason = error.status === 401 ? 'the token has ended' : 'the permission was taken away'
        client.close(closeCodes.notAllowed, reason)
      })
    }, checkEveryMs)
    client.once('close', () => {
      clearInterval(pings)
      clearInterval(checks)
    })
    serve(client)
  }

/** Joins a client with the paused socket of a host, until one of them closes. */
export function join(client: WebSocket, host: WebSocket): void {
  passMessages(client, host)
  passMessages(host, client)
  client.once('close', () => host.terminate())
  host.once('close', (code, reason) => {
    client.removeAllListeners('message')
    client.resume() // to read how it answers
    if (sayable.has(code)) client.close(code, reason)
    else client.close(closeCodes.failed, 'the host has gone')
  })
  if (host.readyState === host.OPEN) host.resume()
  else client.close(closeCodes.failed, 'the host has gone')
}

/** Others only stand for what could not be said: that a connection broke. */
const sayable = new Set<number>(Object.values(closeCodes))

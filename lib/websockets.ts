import { type IncomingMessage, type RequestListener, type Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { type RawData, type WebSocket, WebSocketServer } from 'ws'

// WebSocket server code shared by the API and a host's data plane.

/** Close codes of a WebSocket (RFC 6455, 7.4.1). */
export const closeCodes = {
  ended: 1000,
  stopping: 1001,
  notUnderstood: 1003,
  notAllowed: 1008,
  failed: 1011,
} as const

// A paste arrives as one message.
const maxMessageBytes = 1024 * 1024
// A slow reader may need this long to read what was sent before the close.
const closeTimeoutMs = 120_000
// Above the high mark the sender pauses, until the low mark: a slow reader must not fill memory.
const highWaterBytes = 1024 * 1024
const lowWaterBytes = 256 * 1024

/** Options of both ends. No compression: it costs memory per socket, and terminals write little. */
export const socketOptions = {
  maxPayload: maxMessageBytes,
  perMessageDeflate: false,
  closeTimeout: closeTimeoutMs,
}

/** Whether the request is a valid WebSocket handshake. */
export const asksForWebSocket = ({ method, headers }: IncomingMessage): boolean =>
  method === 'GET' &&
  headers.upgrade?.toLowerCase() === 'websocket' &&
  /\bupgrade\b/i.test(headers.connection ?? '') &&
  headers['sec-websocket-version'] === '13' &&
  /^[+/0-9A-Za-z]{22}==$/.test(headers['sec-websocket-key'] ?? '')

export type WebSockets = ReturnType<typeof makeWebSockets>

/**
 * The WebSockets of one server. `isServed` tells which paths have one; `chooseProtocol` picks one of the subprotocols
 * that a client offers, by default none.
 */
export function makeWebSockets(
  isServed: (path: string) => boolean,
  chooseProtocol: (offered: Set<string>) => string | false = () => false,
) {
  const server = new WebSocketServer({ noServer: true, ...socketOptions, handleProtocols: chooseProtocol })
  const waiting = new WeakMap<IncomingMessage, { socket: Socket; head: Buffer }>()

  return {
    /** Options for the HTTP server: it handles any other upgrade request like an ordinary request. */
    serverOptions: {
      shouldUpgradeCallback: (request: IncomingMessage): boolean =>
        asksForWebSocket(request) && isServed((request.url ?? '').split('?', 1)[0] ?? ''),
    },

    /** Passes handshakes to the handler with an ordinary response: the handler answers it or calls `accept`. */
    attach(http: Server, handler: RequestListener): void {
      http.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
        socket.on('error', () => socket.destroy())
        socket.on('end', () => socket.destroy()) // a client that leaves at once
        const response = new ServerResponse(request)
        response.shouldKeepAlive = false
        response.assignSocket(socket)
        response.once('finish', () => socket.end())
        waiting.set(request, { socket, head })
        handler(request, response)
      })
    },

    /** Answers with 101. Does nothing if the client has left; the response's `close` event reports that. */
    accept(
      request: IncomingMessage,
      response: ServerResponse,
      serve: (socket: WebSocket) => void,
      headers: Record<string, string> = {},
    ): void {
      const asked = waiting.get(request)
      if (!asked?.socket.readable || !asked.socket.writable) return void asked?.socket.destroy()
      response.detachSocket(asked.socket)
      const add = (lines: string[], of: IncomingMessage): void => {
        if (of === request)
          for (const [name, value] of Object.entries(headers)) lines.push(`${name}: ${value}`)
      }
      server.on('headers', add)
      server.handleUpgrade(request, asked.socket, asked.head, serve)
      server.off('headers', add)
    },

    /** Closes all sockets. Use `terminate` for those that do not answer. */
    close(reason: string): void {
      for (const socket of server.clients) socket.close(closeCodes.stopping, reason)
    },
    terminate(): void {
      for (const socket of server.clients) socket.terminate()
    },
  }
}

/** Forwards messages, no faster than the receiver takes them. */
export function passMessages(from: WebSocket, to: WebSocket): void {
  from.on('message', (data: RawData, isBinary: boolean) => {
    to.send(data, { binary: isBinary }, () => {
      if (from.isPaused && to.bufferedAmount <= lowWaterBytes) from.resume()
    })
    if (to.bufferedAmount > highWaterBytes) from.pause()
  })
}

/** Resolves when the message has left this process; rejects if it cannot be sent. */
export const sendWhole = (socket: WebSocket, data: Buffer): Promise<void> =>
  new Promise((resolve, reject) =>
    socket.send(data, { binary: true }, (error) => (error ? reject(error) : resolve())),
  )

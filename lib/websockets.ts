import { type IncomingMessage, type RequestListener, type Server, ServerResponse } from 'node:http'
import type { Socket } from 'node:net'
import { type RawData, type WebSocket, WebSocketServer } from 'ws'

// What the API and a host's data plane have in common as servers of WebSockets.

/** Why a WebSocket is closed (RFC 6455, 7.4.1). */
export const closeCodes = {
  ended: 1000,
  stopping: 1001,
  notUnderstood: 1003,
  notAllowed: 1008,
  failed: 1011,
} as const

// A paste comes as one message.
const maxMessageBytes = 1024 * 1024
// What was sent before the close is read first, however slowly.
const closeTimeoutMs = 120_000
// Between them a sender is made to wait, so that what a reader does not take fills no memory.
const highWaterBytes = 1024 * 1024
const lowWaterBytes = 256 * 1024

/** Of both ends. No compression: it costs memory for each socket, and terminals write little. */
export const socketOptions = {
  maxPayload: maxMessageBytes,
  perMessageDeflate: false,
  closeTimeout: closeTimeoutMs,
}

/** Whether this is a handshake that a server can accept. */
export const asksForWebSocket = ({ method, headers }: IncomingMessage): boolean =>
  method === 'GET' &&
  headers.upgrade?.toLowerCase() === 'websocket' &&
  /\bupgrade\b/i.test(headers.connection ?? '') &&
  headers['sec-websocket-version'] === '13' &&
  /^[+/0-9A-Za-z]{22}==$/.test(headers['sec-websocket-key'] ?? '')

export type WebSockets = ReturnType<typeof makeWebSockets>

/**
 * The WebSockets of one server. `isServed`: on which paths there are some; `chooseProtocol`: which of the subprotocols
 * that a client offers, without it none.
 */
export function makeWebSockets(
  isServed: (path: string) => boolean,
  chooseProtocol: (offered: Set<string>) => string | false = () => false,
) {
  const server = new WebSocketServer({ noServer: true, ...socketOptions, handleProtocols: chooseProtocol })
  const waiting = new WeakMap<IncomingMessage, { socket: Socket; head: Buffer }>()

  return {
    /** For the HTTP server: whatever else asks for an upgrade is a request like others. */
    serverOptions: {
      shouldUpgradeCallback: (request: IncomingMessage): boolean =>
        asksForWebSocket(request) && isServed((request.url ?? '').split('?', 1)[0] ?? ''),
    },

    /** Gives handshakes to the handler, with a response like any other request's: it answers that, or calls `accept`. */
    attach(http: Server, handler: RequestListener): void {
      http.on('upgrade', (request: IncomingMessage, socket: Socket, head: Buffer) => {
        socket.on('error', () => socket.destroy())
        socket.on('end', () => socket.destroy()) // who asks and leaves at once
        const response = new ServerResponse(request)
        response.shouldKeepAlive = false
        response.assignSocket(socket)
        response.once('finish', () => socket.end())
        waiting.set(request, { socket, head })
        handler(request, response)
      })
    },

    /** Answers with 101. Whoever has left meanwhile is not served; the response's `close` has said so. */
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

    /** Closes all of them. Those that do not answer are to be ended by `terminate`. */
    close(reason: string): void {
      for (const socket of server.clients) socket.close(closeCodes.stopping, reason)
    },
    terminate(): void {
      for (const socket of server.clients) socket.terminate()
    },
  }
}

/** Passes messages on as they are, no faster than they are taken. */
export function passMessages(from: WebSocket, to: WebSocket): void {
  from.on('message', (data: RawData, isBinary: boolean) => {
    to.send(data, { binary: isBinary }, () => {
      if (from.isPaused && to.bufferedAmount <= lowWaterBytes) from.resume()
    })
    if (to.bufferedAmount > highWaterBytes) from.pause()
  })
}

/** Resolves when the message has left this process; rejects when it cannot. */
export const sendWhole = (socket: WebSocket, data: Buffer): Promise<void> =>
  new Promise((resolve, reject) =>
    socket.send(data, { binary: true }, (error) => (error ? reject(error) : resolve())),
  )

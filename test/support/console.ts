import { once } from 'node:events'
import type { IncomingMessage } from 'node:http'
import { WebSocket } from 'ws'
import type { Json } from './client.ts'
import { eventually } from './eventually.ts'
import { facts } from './stack.ts'

const sockets = new Set<WebSocket>()

/** The client side of a console, without a screen. */
export class Console {
  readonly socket: WebSocket
  readonly #parts: Buffer[] = []
  /** The close code and reason. */
  readonly closed: Promise<{ code: number; reason: string }>

  constructor(socket: WebSocket) {
    this.socket = socket
    sockets.add(socket)
    socket.on('message', (data, isBinary) => {
      if (!isBinary) throw new Error('a text frame came')
      this.#parts.push(data as Buffer)
    })
    // A refused handshake also emits an error, which `openConsole` throws.
    this.closed = new Promise((resolve) =>
      socket.once('close', (code, reason) => resolve({ code, reason: String(reason) })),
    )
    socket.on('error', () => {})
  }

  get bytes(): Buffer {
    return Buffer.concat(this.#parts)
  }
  get text(): string {
    return this.bytes.toString()
  }
  type(text: string | Buffer): void {
    this.socket.send(Buffer.from(text as string))
  }
  resize(cols: number, rows: number): void {
    this.socket.send(JSON.stringify({ type: 'resize', cols, rows }))
  }
  /** Resolves when this text was shown. */
  async shows(what: string | RegExp, withinMs = 60_000): Promise<void> {
    const shown = () => (typeof what === 'string' ? this.text.includes(what) : what.test(this.text))
    await eventually(shown, { withinMs }).catch((cause: unknown) => {
      throw new Error(`not shown: ${what}; but ${JSON.stringify(this.text.slice(-500))}`, { cause })
    })
  }
}

export interface ConsoleOptions {
  token?: string
  protocols?: string[]
  headers?: Record<string, string>
  query?: string
  api?: string
  /** The kind of instance, in the plural. */
  plural?: string
}

const connect = (id: string, options: ConsoleOptions): WebSocket => {
  const { token, protocols = [], headers = {}, query = '', api = facts().api_url } = options
  const { plural = 'containers' } = options
  const url = new URL(`/api/v1/${plural}/${id}/console${query}`, api.replace(/^http/, 'ws'))
  return new WebSocket(url, protocols, {
    headers: { ...(token ? { authorization: `Bearer ${token}` } : {}), ...headers },
  })
}

/** Opens a console. Rejects if the API refuses it. */
export async function openConsole(id: string, options: ConsoleOptions): Promise<Console> {
  const terminal = new Console(connect(id, options))
  await once(terminal.socket, 'open')
  return terminal
}

/** The answer to a console request that is refused. */
export async function refusedConsole(
  id: string,
  options: ConsoleOptions,
): Promise<{ status: number; body: Json }> {
  const socket = connect(id, options)
  const { promise, resolve, reject } = Promise.withResolvers<IncomingMessage>()
  socket.once('open', () => reject(new Error('it was opened')))
  socket.once('unexpected-response', (_request, answer) => resolve(answer))
  socket.on('error', reject)
  const answer = await promise
  let text = ''
  for await (const part of answer) text += String(part)
  socket.terminate()
  return { status: answer.statusCode ?? 0, body: JSON.parse(text) as Json }
}

/** Closes all consoles. Call it at the end of a test file. */
export function closeConsoles(): void {
  for (const socket of sockets) socket.terminate()
  sockets.clear()
}

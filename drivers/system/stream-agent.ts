import { Agent, type ClientRequest, type ClientRequestArgs } from 'node:http'
import type { Duplex } from 'node:stream'
import { inspect } from 'node:util'

interface Kept {
  keepAlive?: boolean
  /** How many streams requests share. Node counts those that are open: requests at once may open more until then. */
  streams?: number
  /** How long a stream stays without a request. Without it, until the agent is destroyed. */
  idleMs?: number
}

/** An agent for HTTP over streams that are no sockets. Each request opens one, unless they are kept. */
export class StreamAgent extends Agent {
  readonly #connect: () => Promise<Duplex>
  readonly #idleMs: number | undefined
  readonly #idle = new WeakMap<Duplex, NodeJS.Timeout>()

  /** With `keepAlive`, requests share the streams in turn. */
  constructor(connect: () => Promise<Duplex>, { keepAlive = false, streams = 1, idleMs }: Kept = {}) {
    super(keepAlive ? { keepAlive, maxSockets: streams, maxFreeSockets: streams } : { keepAlive })
    this.#connect = keepAlive ? closedAtEnd(connect) : connect
    this.#idleMs = idleMs
  }

  override createConnection(
    _: ClientRequestArgs,
    connected: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    const failed = (error: Error): void => connected(error, undefined as never)
    this.#connect()
      .then(needOpen)
      .then((stream) => connected(null, stream), failed)
  }

  // The agent would set options that only sockets have.
  override keepSocketAlive(stream: Duplex): boolean {
    if (this.#idleMs !== undefined)
      this.#idle.set(stream, setTimeout(() => stream.destroy(), this.#idleMs).unref())
    return true
  }
  override reuseSocket(stream: Duplex, asked: ClientRequest): void {
    clearTimeout(this.#idle.get(stream))
    super.reuseSocket(Object.assign(stream, { ref: () => stream }), asked)
  }

  // dockerode formats all its options at each call, for a debug output.
  [inspect.custom](): string {
    return 'StreamAgent'
  }
}

/** A request notices only what closes while it has the stream: with one that has closed before, it would wait for ever. */
function needOpen(stream: Duplex): Duplex {
  // Callers know a broken connection by its code.
  const closed = { code: 'ECONNRESET' }
  if (stream.destroyed) throw stream.errored ?? Object.assign(new Error('The stream has closed'), closed)
  return stream
}

/** Otherwise an agent would keep what the other side has ended. */
const closedAtEnd = (connect: () => Promise<Duplex>) => async (): Promise<Duplex> => {
  const stream = await connect()
  return stream.once('end', () => stream.destroy())
}

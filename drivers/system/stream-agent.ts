import { Agent, type ClientRequest, type ClientRequestArgs } from 'node:http'
import type { Duplex } from 'node:stream'
import { inspect } from 'node:util'

/** An agent for HTTP over streams that are no sockets. Each request opens one, unless they are kept. */
export class StreamAgent extends Agent {
  readonly #connect: () => Promise<Duplex>

  /** With `keepAlive`, requests share one stream in turn, until the agent is destroyed. */
  constructor(connect: () => Promise<Duplex>, { keepAlive = false } = {}) {
    super(keepAlive ? { keepAlive, maxSockets: 1 } : { keepAlive })
    this.#connect = connect
  }

  override createConnection(
    _: ClientRequestArgs,
    connected: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    const failed = (error: Error): void => connected(error, undefined as never)
    this.#connect().then((stream) => connected(null, stream), failed)
  }

  // The agent would set options that only sockets have.
  override keepSocketAlive(): boolean {
    return true
  }
  override reuseSocket(stream: Duplex, asked: ClientRequest): void {
    super.reuseSocket(Object.assign(stream, { ref: () => stream }), asked)
  }

  // dockerode formats all its options at each call, for a debug output.
  [inspect.custom](): string {
    return 'StreamAgent'
  }
}

import { Agent, type ClientRequestArgs } from 'node:http'
import type { Duplex } from 'node:stream'
import { inspect } from 'node:util'

/** An agent for HTTP over streams that are no sockets. Each request opens one. */
export class StreamAgent extends Agent {
  readonly #connect: () => Promise<Duplex>

  constructor(connect: () => Promise<Duplex>) {
    super({ keepAlive: false })
    this.#connect = connect
  }

  override createConnection(
    _: ClientRequestArgs,
    connected: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    const failed = (error: Error): void => connected(error, undefined as never)
    this.#connect().then((stream) => connected(null, stream), failed)
  }

  // dockerode formats all its options at each call, for a debug output.
  [inspect.custom](): string {
    return 'StreamAgent'
  }
}

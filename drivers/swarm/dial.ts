import { Agent, type ClientRequestArgs } from 'node:http'
import type { Duplex } from 'node:stream'
import { inspect } from 'node:util'
import Docker from 'dockerode'
import type { DialMachine } from '../swarms.ts'

/** Opens each connection through the machine's host. */
class MachineAgent extends Agent {
  readonly #dial: () => Promise<Duplex>

  constructor(dial: () => Promise<Duplex>) {
    super({ keepAlive: false })
    this.#dial = dial
  }

  override createConnection(
    _: ClientRequestArgs,
    connected: (error: Error | null, stream: Duplex) => void,
  ): undefined {
    const failed = (error: Error): void => connected(error, undefined as never)
    this.#dial().then((stream) => connected(null, stream), failed)
  }

  // dockerode formats all its options at each call, for a debug output.
  [inspect.custom](): string {
    return 'MachineAgent'
  }
}

/** A client of the engine inside a machine. `Api`: what is used of it, since dockerode's types lack most of Swarm. */
export const engineOf = <Api>(dial: DialMachine, machineId: string): Api =>
  new Docker({
    // dockerode fills missing options from the environment.
    host: 'machine',
    port: 80,
    protocol: 'http',
    headers: { Connection: 'close' },
    agent: new MachineAgent(() => dial(machineId)),
  } as Docker.DockerOptions) as Api

import Docker from 'dockerode'
import type { DialMachine } from '../swarms.ts'
import { StreamAgent } from '../system/stream-agent.ts'

const clientOf = <Api>(agent: StreamAgent, headers: Record<string, string>): Api =>
  new Docker({
    // dockerode fills missing options from the environment.
    host: 'machine',
    port: 80,
    protocol: 'http',
    headers,
    agent,
  } as Docker.DockerOptions) as Api

/** A client of the engine inside a machine. `Api`: what is used of it, since dockerode's types lack most of Swarm. */
export const engineOf = <Api>(dial: DialMachine, machineId: string): Api =>
  clientOf(new StreamAgent(() => dial(machineId)), { Connection: 'close' })

/**
 * Gives work a client whose calls share one stream, in turn: each stream costs the start of a process in the machine. Not
 * for calls that keep their stream, such as the output of a command.
 */
export async function withEngine<Api, Result>(
  dial: DialMachine,
  machineId: string,
  work: (engine: Api) => Promise<Result>,
): Promise<Result> {
  const agent = new StreamAgent(() => dial(machineId), { keepAlive: true })
  try {
    return await work(clientOf<Api>(agent, {}))
  } finally {
    agent.destroy()
  }
}

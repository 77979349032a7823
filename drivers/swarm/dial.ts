import Docker from 'dockerode'
import type { DialMachine } from '../swarms.ts'
import { StreamAgent } from '../system/stream-agent.ts'

/** A client of the engine inside a machine. `Api`: what is used of it, since dockerode's types lack most of Swarm. */
export const engineOf = <Api>(dial: DialMachine, machineId: string): Api =>
  new Docker({
    // dockerode fills missing options from the environment.
    host: 'machine',
    port: 80,
    protocol: 'http',
    headers: { Connection: 'close' },
    agent: new StreamAgent(() => dial(machineId)),
  } as Docker.DockerOptions) as Api

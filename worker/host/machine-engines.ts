import type { Duplex } from 'node:stream'
import { text } from 'node:stream/consumers'
import type { InstanceEngine } from '../../drivers/instances.ts'
import type { DialMachine } from '../../drivers/swarms.ts'

type Engine = Pick<InstanceEngine, 'pipe'>

const connectsWithinSec = 2

/** Reaches the engines inside a host's machines, by a command in the machine that joins its streams to the engine. */
export const dialMachines =
  (engine: Engine): DialMachine =>
  (machineId) =>
    engine.pipe(machineId, ['socat', '-', 'UNIX-CONNECT:/run/docker.sock'])

/** Connects from inside a machine to an IPv4 address in its VPC. */
export const connectFromMachines =
  (engine: Engine) =>
  (machineId: string, address: string, port: number): Promise<Duplex> =>
    engine.pipe(machineId, ['socat', '-', `TCP4:${address}:${port},connect-timeout=${connectsWithinSec}`])

// socat itself says nothing when it is connected. The address is an argument, not part of the script.
const connects = `socat -u OPEN:/dev/null "TCP4:$1:$2,connect-timeout=${connectsWithinSec}" && echo connected`

/** Whether something listens at an IPv4 address in a machine's VPC, seen from inside the machine. */
export const reachesFromMachines =
  (engine: Engine) =>
  async (machineId: string, address: string, port: number): Promise<boolean> => {
    const stream = await engine.pipe(machineId, ['sh', '-c', connects, 'sh', address, String(port)])
    return (await text(stream)).includes('connected')
  }

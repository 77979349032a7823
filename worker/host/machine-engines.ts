import type { Duplex } from 'node:stream'
import { text } from 'node:stream/consumers'
import { EngineUnavailable, InstanceNotRunning } from '../../drivers/errors.ts'
import type { InstanceEngine } from '../../drivers/instances.ts'
import type { DialMachine } from '../../drivers/swarms.ts'

type Engine = Pick<InstanceEngine, 'pipe'>

const connectsWithinSec = 2

/** The platform starts a machine that has ended again within seconds, and within a minute if it ends again and again. */
const startsAgainWithinMs = 180_000
/** A machine to which nothing was sent for this long may have run meanwhile. */
const forgottenAfterMs = 60_000

/**
 * Pipes into machines that the platform starts again when they end. One that has just ended counts as an engine that does
 * not answer, so steps are retried; one that stays down is an InstanceNotRunning.
 */
export function untilTheyStart({ pipe }: Engine, now: () => number = () => performance.now()): Engine {
  const down = new Map<string, { since: number; last: number }>()
  return {
    async pipe(machineId, command) {
      try {
        const stream = await pipe(machineId, command)
        down.delete(machineId)
        return stream
      } catch (error) {
        if (!(error instanceof InstanceNotRunning)) throw error
        for (const [id, { last }] of down) if (now() - last > forgottenAfterMs) down.delete(id)
        const since = down.get(machineId)?.since ?? now()
        down.set(machineId, { since, last: now() })
        if (now() - since > startsAgainWithinMs) throw error
        throw new EngineUnavailable('The machine is not running', error)
      }
    },
  }
}

/**
 * Reaches the engines inside a host's machines, by a command in the machine that joins its streams to the engine. By itself
 * socat ends half a second after the engine has ended its stream, and the output of each command there ends with socat.
 */
export const dialMachines =
  (engine: Engine): DialMachine =>
  (machineId) =>
    engine.pipe(machineId, ['socat', '-t', '0.02', '-', 'UNIX-CONNECT:/run/docker.sock'])

/** Connects from inside a machine to an IPv4 address in its VPC. */
export const connectFromMachines =
  (engine: Engine) =>
  (machineId: string, address: string, port: number): Promise<Duplex> =>
    engine.pipe(machineId, ['socat', '-', `TCP4:${address}:${port},connect-timeout=${connectsWithinSec}`])

// socat itself says nothing when it is connected. The address is an argument, not part of the script. A process takes some 50 ms
// to start in a machine, so this one tries again itself for two seconds.
const connects = `timeout ${connectsWithinSec + 1} socat -u OPEN:/dev/null \\
  "TCP4:$1:$2,connect-timeout=$3,retry=40,interval=0.05" 2>/dev/null && echo connected`

/**
 * Whether something listens at an IPv4 address in a machine's VPC, seen from inside the machine, now or within two seconds. A
 * try takes at most `trySec`.
 */
export const reachesFromMachines =
  (engine: Engine) =>
  async (machineId: string, address: string, port: number, trySec = connectsWithinSec): Promise<boolean> => {
    const args = [address, port, trySec].map(String)
    const stream = await engine.pipe(machineId, ['sh', '-c', connects, 'sh', ...args])
    return (await text(stream)).includes('connected')
  }

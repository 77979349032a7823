import Docker from 'dockerode'
import type { DialMachine } from '../swarms.ts'
import { StreamAgent } from '../system/stream-agent.ts'

/** A stream waits this long for the next work. The steps of an operation follow each other sooner, also on a busy machine. */
const keptMs = 5_000

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

/** Streams that no work uses, by machine. */
const kept = new WeakMap<DialMachine, Map<string, { agent: StreamAgent; forget: NodeJS.Timeout }>>()

/**
 * Gives work a client whose calls share one stream, in turn, and keeps it for a while for the next work in that machine: each
 * stream costs the start of a process there, some 50 ms. Work that fails closes it. Not for calls that keep their stream, such
 * as the output of a command.
 */
export async function withEngine<Api, Result>(
  dial: DialMachine,
  machineId: string,
  work: (engine: Api) => Promise<Result>,
): Promise<Result> {
  const agent = taken(dial, machineId) ?? new StreamAgent(() => dial(machineId), { keepAlive: true })
  try {
    const result = await work(clientOf<Api>(agent, {}))
    keep(dial, machineId, agent)
    return result
  } catch (error) {
    agent.destroy()
    throw error
  }
}

function taken(dial: DialMachine, machineId: string): StreamAgent | undefined {
  const one = kept.get(dial)?.get(machineId)
  clearTimeout(one?.forget)
  kept.get(dial)?.delete(machineId)
  return one?.agent
}

function keep(dial: DialMachine, machineId: string, agent: StreamAgent): void {
  const ofDial = kept.get(dial) ?? new Map()
  kept.set(dial, ofDial)
  taken(dial, machineId)?.destroy() // one is enough
  const forget = setTimeout(() => taken(dial, machineId)?.destroy(), keptMs).unref()
  ofDial.set(machineId, { agent, forget })
}

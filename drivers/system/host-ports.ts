import { randomInt } from 'node:crypto'
import type { PublishedPort } from '../containers.ts'
import { PortInUse } from '../errors.ts'

/** A published port whose place on the host is known. */
export type BoundPort = PublishedPort & { host_port: number }

/**
 * The ports of one host, which its engines share. An engine's own state says which ports its instances have, so nothing is
 * kept here and nothing is lost by a restart.
 */
export interface HostPorts {
  /** Of this machine, IPv4: where ports are published. */
  readonly address: string
  /** Adds an engine. `given` returns the `portKey`s of all its instances but one, of those too that do not run. */
  addEngine(given: (exceptId: string) => Promise<string[]>): void
  /**
   * Gives each port of an instance its place on the host: the one asked for, the one it had (`kept_port`), or any that is
   * free. `avoid` holds `portKey`s that others have outside the platform. Throws PortInUse(null) when no port is free.
   */
  place(instanceId: string, asked: PublishedPort[], avoid: ReadonlySet<string>): Promise<BoundPort[]>
}

/** How a port of the host is written in labels, and compared. */
export const portKey = (port: { host_port: number; protocol: string }): string =>
  `${port.host_port}/${port.protocol}`

/** Whether the ports that an instance has are the ones asked for; null takes any. */
export const portsMatch = (asked: PublishedPort[], bound: BoundPort[]): boolean =>
  asked.length === bound.length &&
  asked.every((port) =>
    bound.some(
      (have) =>
        have.container_port === port.container_port &&
        have.protocol === port.protocol &&
        (port.host_port === null || port.host_port === have.host_port),
    ),
  )

/** `range`: both ends included, for ports for which the tenant names none. */
export function makeHostPorts({
  address,
  range: [from, to],
}: {
  address: string
  range: readonly [from: number, to: number]
}): HostPorts {
  const engines: ((exceptId: string) => Promise<string[]>)[] = []

  // Random, since two calls at once would both take the first free one, and only the kernel can tell.
  function anyFree(protocol: string, taken: ReadonlySet<string>): number {
    const count = to - from + 1
    const start = randomInt(count)
    for (let step = 0; step < count; step++) {
      const host_port = from + ((start + step) % count)
      if (!taken.has(portKey({ host_port, protocol }))) return host_port
    }
    throw new PortInUse(null)
  }

  return {
    address,

    addEngine: (given) => void engines.push(given),

    async place(instanceId, asked, avoid) {
      const chooses = asked.some(({ host_port }) => host_port === null)
      const given = chooses ? await Promise.all(engines.map((engine) => engine(instanceId))) : []
      const taken = new Set([...avoid, ...given.flat()])
      return asked.map((port) => {
        const { container_port, protocol, kept_port: host_port } = port
        const kept = host_port && !taken.has(portKey({ host_port, protocol })) ? host_port : null
        const bound = {
          container_port,
          protocol,
          host_port: port.host_port ?? kept ?? anyFree(protocol, taken),
        }
        taken.add(portKey(bound))
        return bound
      })
    },
  }
}

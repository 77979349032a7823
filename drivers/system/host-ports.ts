import { randomInt } from 'node:crypto'
import type { PublishedPort } from '../containers.ts'
import { isPublishable, type PublishablePorts } from '../../lib/port-ranges.ts'
import { PortInUse, PortNotAllowed } from '../errors.ts'

/** A published port with its host port. */
export type BoundPort = PublishedPort & { host_port: number }

/**
 * The published ports of one host, shared by its engines. Each engine's state records the ports of its instances, so
 * nothing is stored here and a restart loses nothing.
 */
export interface HostPorts {
  /** The host's IPv4 address for published ports. */
  readonly address: string
  /** Adds an engine. `given` returns the `portKey`s of all its instances except one, including stopped ones. */
  addEngine(given: (exceptId: string) => Promise<string[]>): void
  /**
   * Chooses a host port for each port of an instance: the requested one, the former one (`kept_port`), or any free
   * one. `avoid` holds `portKey`s that other programs use. `beyond`: ports outside the host's range that may be
   * requested too. Throws PortInUse(null) if no port is free, PortNotAllowed.
   */
  place(
    instanceId: string,
    asked: PublishedPort[],
    avoid: ReadonlySet<string>,
    beyond?: readonly number[],
  ): Promise<BoundPort[]>
}

/** A host port as written in labels, and as compared. */
export const portKey = (port: { host_port: number; protocol: string }): string =>
  `${port.host_port}/${port.protocol}`

/** Whether an instance's ports match the requested ones; null matches any. */
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

/** `range`: both ends included. `reserved`: ranges within it that no instance gets. */
export function makeHostPorts({
  address,
  range,
  reserved = [],
}: { address: string } & Pick<PublishablePorts, 'range'> & Partial<PublishablePorts>): HostPorts {
  const [from, to] = range
  const isAllowed = (port: number): boolean => isPublishable(port, { range, reserved })
  const engines: ((exceptId: string) => Promise<string[]>)[] = []

  // Start at random: concurrent calls would all choose the first free port, and only the kernel detects that.
  function anyFree(protocol: string, taken: ReadonlySet<string>): number {
    const count = to - from + 1
    const start = randomInt(count)
    for (let step = 0; step < count; step++) {
      const host_port = from + ((start + step) % count)
      if (isAllowed(host_port) && !taken.has(portKey({ host_port, protocol }))) return host_port
    }
    throw new PortInUse(null)
  }

  return {
    address,

    addEngine: (given) => void engines.push(given),

    async place(instanceId, asked, avoid, beyond = []) {
      for (const { host_port } of asked)
        if (host_port !== null && !isAllowed(host_port) && !beyond.includes(host_port))
          throw new PortNotAllowed(host_port)
      const chooses = asked.some(({ host_port }) => host_port === null)
      const given = chooses ? await Promise.all(engines.map((engine) => engine(instanceId))) : []
      const taken = new Set([...avoid, ...given.flat()])
      return asked.map((port) => {
        const { container_port, protocol, kept_port: host_port } = port
        const mayKeep = host_port && (isAllowed(host_port) || beyond.includes(host_port))
        const kept = mayKeep && !taken.has(portKey({ host_port, protocol })) ? host_port : null
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

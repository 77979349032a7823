import { randomInt } from 'node:crypto'
import type { PublishedPort } from '../containers.ts'
import { PortInUse } from '../errors.ts'

/** A published port whose place on the host is known. */
export type BoundPort = PublishedPort & { host_port: number }

/** Where on its host what instances publish is. */
export interface Publishing {
  /** Of this machine, IPv4. */
  address: string
  /** Host ports, both ends included, that are taken where the tenant names none. */
  range: readonly [from: number, to: number]
  /** `portKey`s that another engine of this host has given away. */
  elsewhere?: () => Promise<string[]>
}

/**
 * How a container is reached from outside. Today its ports are published on its host; a VPC's interface
 * takes this place. It speaks the engine's vocabulary and calls nothing.
 */
export interface ContainerNetwork {
  /** Gives each port its place on the host; `taken` holds `portKey`s. Throws PortInUse(null) when none is free. */
  place(asked: PublishedPort[], taken: ReadonlySet<string>): BoundPort[]
  /** `portKey`s that another engine of this host has given away. */
  elsewhere(): Promise<string[]>
  /** What the engine's create call needs for these ports. */
  createOptions(ports: BoundPort[]): {
    ExposedPorts: Record<string, Record<string, never>>
    PortBindings: Record<string, { HostIp: string; HostPort: string }[]>
  }
}

/** How a port of the host is written in labels, and compared. */
export const portKey = (port: { host_port: number; protocol: string }): string =>
  `${port.host_port}/${port.protocol}`

/** Whether the ports that a container has are the ones asked for; null takes any. */
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

/** Reads back what `createOptions` wrote: the port bindings of an existing container. */
export const boundPorts = (bindings: Record<string, { HostPort: string }[] | null>): BoundPort[] =>
  Object.entries(bindings).flatMap(([key, places]) => {
    const [port, protocol] = key.split('/')
    return (places ?? []).map(({ HostPort }) => ({
      container_port: Number(port),
      protocol: protocol === 'udp' ? ('udp' as const) : ('tcp' as const),
      host_port: Number(HostPort),
    }))
  })

/** Publishes on an address of the host. */
export function publishOnHost({
  address,
  range: [from, to],
  elsewhere = async () => [],
}: Publishing): ContainerNetwork {
  // Random, since two creates at once would both take the first free one, and only the engine can tell.
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
    elsewhere,

    place(asked, taken) {
      const occupied = new Set(taken)
      return asked.map((port) => {
        const { container_port, protocol, kept_port: host_port } = port
        const kept = host_port && !occupied.has(portKey({ host_port, protocol })) ? host_port : null
        const bound = {
          container_port,
          protocol,
          host_port: port.host_port ?? kept ?? anyFree(protocol, occupied),
        }
        occupied.add(portKey(bound))
        return bound
      })
    },

    createOptions(ports) {
      const bindings: Record<string, { HostIp: string; HostPort: string }[]> = {}
      for (const { container_port, protocol, host_port } of ports) {
        // IPv4 only: the engine runs a proxy process for each address family of each port.
        const place = { HostIp: address, HostPort: String(host_port) }
        ;(bindings[`${container_port}/${protocol}`] ??= []).push(place)
      }
      const exposed = Object.fromEntries(Object.keys(bindings).map((key) => [key, {}]))
      return { ExposedPorts: exposed, PortBindings: bindings }
    },
  }
}

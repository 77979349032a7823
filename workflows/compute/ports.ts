import type { FoundContainer, PublishedPort } from '../../drivers/containers.ts'

// Where an instance's published ports are reached, as its record says it.

/** On the host where it runs. */
export const boundAt = (ports: FoundContainer['ports'], host_address: string) =>
  ports.map((port) => ({ ...port, host_address }))

/** Nowhere, until it starts. */
export const unbound = (ports: PublishedPort[]) =>
  ports.map(({ container_port, protocol, host_port }) => ({
    container_port,
    protocol,
    host_port,
    host_address: null,
  }))

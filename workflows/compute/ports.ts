import type { FoundContainer } from '../../drivers/containers.ts'

// Where an instance's published ports are reached, as its record says it.

/** On the host where it runs. */
export const boundAt = (ports: FoundContainer['ports'], host_address: string) =>
  ports.map((port) => ({ ...port, host_address }))

import type { FoundContainer } from '../../drivers/containers.ts'
import { unbound } from '../../lib/ports.ts'

type Ports = FoundContainer['ports']

/** Where an instance's published ports are reached, as its record says it. `found` null: it does not run. VMs publish none. */
export function reached(
  { ports }: { ports?: Parameters<typeof unbound>[0] },
  found: { ports: Ports } | null,
  host_address: string,
) {
  if (!ports) return {}
  return { bindings: found ? found.ports.map((port) => ({ ...port, host_address })) : unbound(ports) }
}

import type { FoundContainer } from '../../drivers/containers.ts'
import { unbound } from '../../lib/ports.ts'

type Ports = FoundContainer['ports']

/** The `bindings` field of an instance with published ports. `found` is null if it does not run. VMs have no ports. */
export function reached(
  { ports }: { ports?: Parameters<typeof unbound>[0] },
  found: { ports: Ports } | null,
  host_address: string,
) {
  if (!ports) return {}
  return { bindings: found ? found.ports.map((port) => ({ ...port, host_address })) : unbound(ports) }
}

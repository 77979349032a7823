import type { BoundPort } from '../system/host-ports.ts'

// Published ports in the engine's format.

/** What the engine's create call needs to publish these ports. */
export function portOptions(
  address: string,
  ports: BoundPort[],
): {
  ExposedPorts: Record<string, Record<string, never>>
  PortBindings: Record<string, { HostIp: string; HostPort: string }[]>
} {
  const bindings: Record<string, { HostIp: string; HostPort: string }[]> = {}
  for (const { container_port, protocol, host_port } of ports) {
    // IPv4 only: the engine runs a proxy process for each address family of each port.
    const place = { HostIp: address, HostPort: String(host_port) }
    ;(bindings[`${container_port}/${protocol}`] ??= []).push(place)
  }
  const exposed = Object.fromEntries(Object.keys(bindings).map((key) => [key, {}]))
  return { ExposedPorts: exposed, PortBindings: bindings }
}

/** Reads back what `portOptions` wrote: the port bindings of an existing container. */
export const boundPorts = (bindings: Record<string, { HostPort: string }[] | null>): BoundPort[] =>
  Object.entries(bindings).flatMap(([key, places]) => {
    const [port, protocol] = key.split('/')
    return (places ?? []).map(({ HostPort }) => ({
      container_port: Number(port),
      protocol: protocol === 'udp' ? ('udp' as const) : ('tcp' as const),
      host_port: Number(HostPort),
    }))
  })

/** Where a published port is reachable; host address and port are null until it is. */
export interface Binding {
  container_port: number
  protocol: 'tcp' | 'udp'
  host_address: string | null
  host_port: number | null
}

/** The ports of an instance that is not running, as requested. */
export const unbound = (ports: Omit<Binding, 'host_address'>[]): Binding[] =>
  ports.map(({ container_port, protocol, host_port }) => ({
    container_port,
    protocol,
    host_port,
    host_address: null,
  }))

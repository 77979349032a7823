/** Where a published port is reached; nulls until it is. */
export interface Binding {
  container_port: number
  protocol: 'tcp' | 'udp'
  host_address: string | null
  host_port: number | null
}

/** Of an instance that does not run: as its ports were asked for. */
export const unbound = (ports: Omit<Binding, 'host_address'>[]): Binding[] =>
  ports.map(({ container_port, protocol, host_port }) => ({
    container_port,
    protocol,
    host_port,
    host_address: null,
  }))

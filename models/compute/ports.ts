import type { PublishedPort } from '../../drivers/containers.ts'

// Ports that an instance publishes on its host: `ports` as they were asked for, and what they have become.

/** Where a published port is reached; nulls until it is. */
export interface Binding {
  container_port: number
  protocol: 'tcp' | 'udp'
  host_address: string | null
  host_port: number | null
}

type Asked = Omit<PublishedPort, 'kept_port'>

/** Of an instance that does not run yet. */
export const unbound = (ports: Asked[]): Binding[] => ports.map((port) => ({ ...port, host_address: null }))

/** For its host: which it had before, and has again if they are free. */
export const withKept = (ports: Asked[], bindings: Binding[]): PublishedPort[] =>
  ports.map((port) => {
    const { container_port, protocol } = port
    const had = bindings.find((one) => one.container_port === container_port && one.protocol === protocol)
    return { ...port, kept_port: had?.host_port ?? null }
  })

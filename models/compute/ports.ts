import type { PublishedPort } from '../../drivers/containers.ts'
import type { Binding } from '../../lib/ports.ts'

// The ports that an instance publishes on its host: `ports` as requested, `bindings` as assigned.

type Asked = Omit<PublishedPort, 'kept_port'>

/** Adds the former host ports, which the host assigns again if they are free. */
export const withKept = (ports: Asked[], bindings: Binding[]): PublishedPort[] =>
  ports.map((port) => {
    const { container_port, protocol } = port
    const had = bindings.find((one) => one.container_port === container_port && one.protocol === protocol)
    return { ...port, kept_port: had?.host_port ?? null }
  })

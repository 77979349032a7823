import { z } from 'zod'

// The ports that an instance publishes on its host.

const PortNumber = z.int().min(1).max(65535)
const Protocol = z.enum(['tcp', 'udp'])

/** Ports in a request. */
export const Ports = z
  .array(
    z.strictObject({
      container_port: PortNumber,
      protocol: Protocol.default('tcp'),
      host_port: z
        .int()
        .min(1024)
        .max(65535)
        .nullable()
        .default(null)
        .describe('Default: the host picks a port and keeps it'),
    }),
  )
  .max(32)
  .refine(
    (ports) => unique(ports.map((port) => `${port.container_port}/${port.protocol}`)),
    'a port is published twice',
  )
  .refine(
    (ports) =>
      unique(ports.filter((port) => port.host_port).map((port) => `${port.host_port}/${port.protocol}`)),
    'a host port is taken twice',
  )

/** Ports in a view. */
export const PortViews = z.array(
  z.strictObject({
    container_port: PortNumber,
    protocol: Protocol,
    host_port: PortNumber.nullable(),
    host_address: z.string().nullable(),
  }),
)

const unique = (values: string[]): boolean => new Set(values).size === values.length

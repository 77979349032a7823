import type { PublishedPort } from '../../drivers/containers.ts'
import { isPublishable } from '../../lib/port-ranges.ts'
import type { Binding } from '../../lib/ports.ts'
import { type InputError, InvalidInput } from '../../lib/problem.ts'
import { Host } from './hosts.ts'

// The ports that an instance publishes on its host: `ports` as requested, `bindings` as assigned.

type Asked = Omit<PublishedPort, 'kept_port'>

/** Adds the former host ports, which the host assigns again if they are free. */
export const withKept = (ports: Asked[], bindings: Binding[]): PublishedPort[] =>
  ports.map((port) => {
    const { container_port, protocol } = port
    const had = bindings.find((one) => one.container_port === container_port && one.protocol === protocol)
    return { ...port, kept_port: had?.host_port ?? null }
  })

/**
 * A requested host port must be one that a host publishes: the chosen host, or any. The host checks it again, because
 * another one may be found. Throws InvalidInput.
 */
export async function mustBePublished(
  ports: Pick<Asked, 'host_port'>[],
  hostId: string | null = null,
): Promise<void> {
  const errors = await notPublished(
    ports.map(({ host_port }, i) => ({ pointer: `/ports/${i}/host_port`, port: host_port })),
    hostId,
  )
  if (errors.length) throw new InvalidInput(422, errors)
}

/** The requested ports that no host publishes, each as a mistake at its pointer. */
export async function notPublished(
  asked: { pointer: string; port: number | null }[],
  hostId: string | null = null,
): Promise<InputError[]> {
  if (asked.every(({ port }) => port === null)) return []
  const these = hostId === null ? {} : { _id: hostId }
  const hosts = await Host.find({ ...these, published_ports: { $ne: null } }, { published_ports: 1 }).lean()
  const offered = hosts.flatMap(({ published_ports }) => published_ports ?? [])
  const ranges = [...new Set(offered.map(({ range }) => range.join('-')))].join(', ')
  return asked.flatMap(({ pointer, port }) =>
    port === null || offered.some((one) => isPublishable(port, one))
      ? []
      : [{ pointer, message: `must be in ${ranges || 'the range of a host'}, and not reserved` }],
  )
}

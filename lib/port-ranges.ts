import { z } from 'zod'

// The host ports that instances may publish: a host's range, without what is reserved in it.

const Port = z.int().min(1).max(65535)
const PortRange = z.tuple([Port, Port]).readonly()
export type PortRange = z.output<typeof PortRange>

export const PublishablePorts = z.strictObject({ range: PortRange, reserved: z.array(PortRange) })
export type PublishablePorts = z.output<typeof PublishablePorts>

/** Parses `22000-22999` or `22000`. */
export function parsePorts(text: string): [from: number, to: number] {
  const [from = 0, to = from] = text.split('-').map(Number)
  return [from, to]
}

const isIn = (port: number, [from, to]: PortRange): boolean => port >= from && port <= to

export const isPublishable = (port: number, { range, reserved }: PublishablePorts): boolean =>
  isIn(port, range) && !reserved.some((one) => isIn(port, one))

/**
 * The usual ports of what the platform consists of, which a host cannot know from its own settings: VXLAN, the API and
 * the roles' metrics, Temporal and its UI, MongoDB.
 */
export const platformPorts: PortRange[] = ['4789', '7080-7093', '7233', '8233', '27017-27019', '27080'].map(
  parsePorts,
)

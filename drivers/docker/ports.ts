import type Docker from 'dockerode'
import type { ContainerSpec } from '../containers.ts'
import { wordsOf } from './errors.ts'
import { anyHosts, labels } from './spec.ts'
import type { BoundPort, ContainerNetwork } from '../system/published-ports.ts'

/** Where on the host its ports are to be. */
export async function placePorts(
  docker: Docker,
  network: ContainerNetwork,
  { ports }: Pick<ContainerSpec, 'ports'>,
  avoid: ReadonlySet<string>,
): Promise<BoundPort[]> {
  const anyPort = ports.some(({ host_port }) => host_port === null)
  const others = anyPort ? await Promise.all([portsInUse(docker), network.elsewhere()]) : []
  const taken = new Set([...avoid, ...others.flat()])
  return network.place(ports, taken)
}

/** The ports of all containers, stopped ones too: those the engine would give away. As `portKey`s. */
export async function portsInUse(docker: Docker): Promise<string[]> {
  const containers = await docker.listContainers({ all: true, filters: { label: anyHosts } })
  return containers.flatMap(({ Labels }) => (Labels[labels.ports] ?? '').split(',').filter(Boolean))
}

/** The host port that the engine could not have; undefined when that was not the trouble. */
export function clashingPort(error: unknown): number | undefined {
  const clash = /:(\d+)(?:\/\w+)?(?: failed)?: .*already (?:allocated|in use)/.exec(wordsOf(error))
  return clash ? Number(clash[1]) : undefined
}

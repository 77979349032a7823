import type Docker from 'dockerode'
import { wordsOf } from './errors.ts'
import { anyHosts, labels } from './spec.ts'

/** The ports of all containers but one, of those too that do not run: those the engine would give away. As `portKey`s. */
export async function portsGiven(docker: Docker, exceptId: string): Promise<string[]> {
  const containers = await docker.listContainers({ all: true, filters: { label: anyHosts } })
  return containers
    .filter(({ Labels }) => Labels[labels.resource] !== exceptId)
    .flatMap(({ Labels }) => (Labels[labels.ports] ?? '').split(',').filter(Boolean))
}

/** The host port that the engine could not have; undefined when that was not the trouble. */
export function clashingPort(error: unknown): number | undefined {
  const clash = /:(\d+)(?:\/\w+)?(?: failed)?: .*already (?:allocated|in use)/.exec(wordsOf(error))
  return clash ? Number(clash[1]) : undefined
}

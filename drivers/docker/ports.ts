import type Docker from 'dockerode'
import { wordsOf } from './errors.ts'
import { anyHosts, labels } from './spec.ts'

/** The ports of all other containers as `portKey`s, including stopped ones: the engine would give those away. */
export async function portsGiven(docker: Docker, exceptId: string): Promise<string[]> {
  const containers = await docker.listContainers({ all: true, filters: { label: anyHosts } })
  return containers
    .filter(({ Labels }) => Labels[labels.resource] !== exceptId)
    .flatMap(({ Labels }) => (Labels[labels.ports] ?? '').split(',').filter(Boolean))
}

/** The host port that the engine could not bind; undefined if the error has another cause. */
export function clashingPort(error: unknown): number | undefined {
  const clash = /:(\d+)(?:\/\w+)?(?: failed)?: .*already (?:allocated|in use)/.exec(wordsOf(error))
  return clash ? Number(clash[1]) : undefined
}

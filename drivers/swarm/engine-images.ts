import type Docker from 'dockerode'
import { asking, statusOf } from '../docker/errors.ts'
import type { ForgetImages } from '../image-builds.ts'
import type { DialMachine } from '../swarms.ts'
import { engineOf } from './dial.ts'

// The images that the engines of machines have, beside those in the registries.

/** All images that are built on workers have it. Without a value: equal builds have the same digest. */
export const builtLabel = 'keelson.built'

/** An engine calls an image without a tag dangling. */
const unused = { dangling: ['true'], until: ['24h'] }

/** Removes pulled images that no container has. */
export const makeForgetImages =
  (dial: DialMachine): ForgetImages =>
  (machineId) =>
    asking(async () => {
      await engineOf<Docker>(dial, machineId).pruneImages({ filters: unused })
    })

/**
 * Removes the images that were built on this machine, but those that a container has and those with these tags. An image
 * inherits the label of the one that it is based on: only names that begin with `registry` are the platform's.
 */
export async function forgetBuilt(docker: Docker, registry: string, keptTags: Set<string>): Promise<void> {
  const built = await docker.listImages({ filters: { label: [builtLabel] } })
  const names = built.flatMap(({ RepoTags }) => RepoTags ?? []).filter((one) => one.startsWith(registry))
  for (const name of names)
    if (!keptTags.has(tagOf(name))) await docker.getImage(name).remove().catch(unlessUsed)
}

const tagOf = (name: string): string => name.slice(name.lastIndexOf(':') + 1)

/** 404: it is gone; 409: a container has it. */
export function unlessUsed(error: unknown): void {
  if (![404, 409].includes(statusOf(error) ?? 0)) throw error
}

import { setTimeout as delay } from 'node:timers/promises'
import { makeContainersOnHost } from '../../../activities/host/containers.ts'
import type { HostImages } from '../../../drivers/docker/host-images.ts'
import type { Logger } from '../../../lib/log.ts'
import type { ObservedInstances } from '../instances.ts'
import type { HostPart } from '../part.ts'

const collectEveryMs = 60_000

type Parts = Parameters<typeof makeContainersOnHost>[0] & {
  instances: ObservedInstances
  images: Pick<HostImages, 'collect'>
  log: Logger
}

export const containersPart = ({ instances, images, log, ...of }: Parts): HostPart => ({
  name: 'containers',
  kinds: ['container'],
  activities: makeContainersOnHost(of),
  ...instances,
  keep: (signal) => keepImages(images, log, signal),
})

/** Removes images that nothing uses, until aborted. */
async function keepImages(
  images: Pick<HostImages, 'collect'>,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    await images
      .collect()
      .then((names) => names.length > 0 && log.info({ images: names }, 'removed images that nothing used'))
      .catch((err: unknown) => log.warn({ err }, 'images were not looked at; trying again'))
    await delay(collectEveryMs, undefined, { signal }).catch(() => undefined)
  }
}

import { setTimeout as delay } from 'node:timers/promises'
import { makeContainersOnHost } from '../../../activities/host/containers.ts'
import type { CrashLoops } from '../../../drivers/docker/crash-loops.ts'
import type { HostImages } from '../../../drivers/docker/host-images.ts'
import type { HostLayers } from '../../../drivers/docker/host-layers.ts'
import type { ContainerEngine } from '../../../drivers/containers.ts'
import type { Logger } from '../../../lib/log.ts'
import type { ObservedInstances } from '../instances.ts'
import type { HostPart } from '../part.ts'

const collectEveryMs = 60_000
/** One container is measured at a time: some seven a second if all wait. */
const lookEveryMs = 100
const fullGraceSec = 10
/** Each tenant's containers that end again and again are restarted at most once in this time. */
const restartEveryMs = 1_000

type Parts = Parameters<typeof makeContainersOnHost>[0] & {
  instances: ObservedInstances
  images: Pick<HostImages, 'collect'>
  layers: Pick<HostLayers, 'look' | 'isFull'>
  loops: Pick<CrashLoops, 'restart'>
  log: Logger
}

export const containersPart = ({ instances, images, layers, loops, log, ...of }: Parts): HostPart => ({
  name: 'containers',
  kinds: ['container'],
  activities: makeContainersOnHost(of),
  ...instances,
  keep: (signal) =>
    Promise.all([
      keepImages(images, log, signal),
      keepLayers({ layers, engine: of.engine, instances, log }, signal),
      keepRestarting(loops, log, signal),
    ]),
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
      .catch((err: unknown) => log.warn({ err }, 'unused images were not removed; trying again'))
    await delay(collectEveryMs, undefined, { signal }).catch(() => undefined)
  }
}

/** Restarts containers that end again and again, until aborted. */
async function keepRestarting(
  loops: Pick<CrashLoops, 'restart'>,
  log: Logger,
  signal: AbortSignal,
): Promise<void> {
  while (!signal.aborted) {
    await loops
      .restart(signal)
      .catch(
        (err: unknown) => !signal.aborted && log.warn({ err }, 'a container was not restarted; trying again'),
      )
    await delay(restartEveryMs, undefined, { signal }).catch(() => undefined)
  }
}

interface Layers {
  layers: Pick<HostLayers, 'look' | 'isFull'>
  engine: Pick<ContainerEngine, 'stop'>
  instances: Pick<ObservedInstances, 'found'>
  log: Logger
}

/** Stops containers that wrote more than they may, until aborted. */
export async function keepLayers(
  { layers, engine, instances, log }: Layers,
  signal: AbortSignal,
): Promise<void> {
  /** What is being stopped or was: the list of found ones learns of it later. */
  const stopped = new Map<string, string>()

  function stop(id: string, run: string): void {
    if (stopped.get(id) === run) return
    stopped.set(id, run)
    log.warn({ instance_id: id }, 'stopping a container that wrote more than its disk_gib')
    // Not awaited: others are measured meanwhile.
    engine.stop(id, fullGraceSec).catch((err: unknown) => {
      stopped.delete(id)
      log.warn({ err, instance_id: id }, 'the container was not stopped; trying again')
    })
  }

  while (!signal.aborted) {
    const containers = instances.found().filter((one) => one.kind === 'container')
    const full = await layers.look(containers, signal).catch((err: unknown) => {
      if (!signal.aborted) log.warn({ err }, 'a container was not measured; trying again')
      return []
    })
    for (const one of full) stop(one.id, `${one.engine_id} ${one.started_at}`)
    for (const id of stopped.keys()) if (!layers.isFull(id)) stopped.delete(id)
    await delay(lookEveryMs, undefined, { signal }).catch(() => undefined)
  }
}

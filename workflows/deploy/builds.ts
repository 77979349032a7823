import {
  CancellationScope,
  CancelledFailure,
  isCancellation,
  proxyLocalActivities,
  TemporalFailure,
} from '@temporalio/workflow'
import type { PlaceOnHost } from '../../lib/deploy-protocol.ts'
import type { BuildActivities } from '../../activities/deploy/builds.ts'
import { durable } from '../durable.ts'
import { isAway, on } from '../hosts.ts'
import { together } from '../together.ts'

const platform = proxyLocalActivities<BuildActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** A worker builds one image at a time: the others may wait this long for their turns. */
const turnWithinSec = 6 * 3600

const tidying = (hostId: string) =>
  on(hostId, {
    scheduleToStartTimeout: '1 minute',
    startToCloseTimeout: '10 minutes', // waits for its turn between builds
    retry: { maximumAttempts: 2 },
  })

/** Removes images that are no longer needed. What is left, the next build removes. */
async function tidy(deployServerId: string, place: PlaceOnHost): Promise<void> {
  const removeFrom = ({ host_id, machine_id }: PlaceOnHost) =>
    tidying(host_id).tidyImagesOnHost(deployServerId, machine_id)
  const removed = await removeFrom(place)
  const copies = removed.length ? await platform.copyPlace(deployServerId) : null
  const copiesRemoved = copies ? await removeFrom(copies) : removed
  const gone = removed.filter((id) => copiesRemoved.includes(id))
  await platform.noteImagesGone(deployServerId, gone)
  const workers = await platform.workerPlaces(deployServerId)
  await together(workers.map((worker) => tidying(worker.host_id).forgetImagesOnHost(worker.machine_id)))
}

/** A machine whose host is lost is replaced within minutes. */
const triesToCopy = 15

interface Copying {
  /** Of an image that was just built. */
  buildId?: string | null
  /** How often a machine that is away is looked for. */
  tries?: number
  progress?: (step: string) => void
}

/**
 * Copies the images that only one of the registries has to the other one. What it does not get done, the next build, push
 * or replacement does; `image_on` says which machines have an image. Throws `image_lost`: see `placesToCopyTo`.
 */
export async function copyImages(
  deployServerId: string,
  { buildId = null, tries = triesToCopy, progress }: Copying = {},
): Promise<void> {
  progress?.('copying the image to the control plane')
  const done = new Set<string>()
  for (let left = tries; left > 0; left--) {
    const places = await platform.placesToCopyTo(deployServerId, buildId)
    const open = places.filter(({ machine_id }) => !done.has(machine_id))
    if (open.length === 0) return
    for (const place of open) {
      try {
        const copied = await on(place.host_id, {
          scheduleToStartTimeout: '1 minute', // then the machine may be elsewhere
          retry: { maximumAttempts: 5 },
        }).copyImagesOnHost(deployServerId, place.machine_id)
        await platform.noteImagesOn(deployServerId, place, copied)
      } catch (error) {
        if (isCancellation(error)) throw error
        if (isAway(error)) continue
      }
      done.add(place.machine_id)
    }
  }
}

/** Makes sure that the registry runs from which the workers pull the image of a deployment. */
export async function ensureRegistry(deployServerId: string, deploymentId: string): Promise<void> {
  const { host_id, machine_id } = await platform.registryPlace(deployServerId, deploymentId)
  await on(host_id, {
    // Workers may have the image already, and the release fails by itself if not.
    scheduleToStartTimeout: '1 minute',
    retry: { maximumAttempts: 3 },
  }).ensureRegistryOnHost(deployServerId, machine_id)
}

/** A cancelled step whose host is away ends by its timeout: that is the cancellation, too. */
async function cancelled<T>(step: Promise<T>): Promise<T> {
  try {
    return await step
  } catch (error) {
    if (!CancellationScope.current().consideredCancelled) throw error
    throw new CancelledFailure('The build was cancelled', [], error as Error)
  }
}

/** After a push from outside. What it does not get done, the next one does. */
async function tidyAfterPush(deployServerId: string): Promise<void> {
  try {
    await tidy(deployServerId, await platform.registryPlace(deployServerId))
  } catch (error) {
    if (!(error instanceof TemporalFailure)) throw error
  }
}

/** Builds an image on the worker, and pushes it to the deploy server's registry. For a pushed image, copying and tidying are left. */
export const createBuild = durable<{ pushed?: true; deploy_server_id?: string }>(
  async ({ id, input, undo, progress, afterwards }) => {
    if (input.pushed && input.deploy_server_id !== undefined) {
      await copyImages(input.deploy_server_id, { progress })
      progress('removing images that are no longer needed')
      await tidyAfterPush(input.deploy_server_id)
      return { status: 'succeeded' }
    }
    undo(() => platform.endBuild(id, null))
    const { deploy_server_id, place, timeout_sec } = await platform.beginBuild(id)
    progress(`building the image on ${place.node}`)
    undo(() => on(place.host_id).endBuildOnHost(place.machine_id, id))
    const host = on(place.host_id, {
      startToCloseTimeout: `${turnWithinSec + timeout_sec} s`,
      // A build is long: it is not begun again for ever. A worker that has ended may be away for some of the tries: they
      // take almost three minutes.
      retry: { initialInterval: '1 s', maximumInterval: '10 s', maximumAttempts: 20 },
    })
    const image = await cancelled(host.buildImageOnHost(deploy_server_id, id, place.machine_id))
    await platform.endBuild(id, image)
    await copyImages(deploy_server_id, { buildId: id, progress })
    afterwards(() => tidy(deploy_server_id, place))
    return { status: 'succeeded' }
  },
  { onFailure: 'failed', onCancel: 'cancelled' },
)

import {
  CancellationScope,
  CancelledFailure,
  patched,
  proxyLocalActivities,
  TemporalFailure,
} from '@temporalio/workflow'
import type { PlaceOnHost } from '../../lib/deploy-protocol.ts'
import type { BuildActivities } from '../../activities/deploy/builds.ts'
import { durable } from '../durable.ts'
import { on } from '../hosts.ts'
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
async function tidy(deployServerId: string, { host_id, machine_id }: PlaceOnHost): Promise<void> {
  const gone = await tidying(host_id).tidyImagesOnHost(deployServerId, machine_id)
  await platform.noteImagesGone(deployServerId, gone)
  const workers = await platform.workerPlaces(deployServerId)
  await together(workers.map((worker) => tidying(worker.host_id).forgetImagesOnHost(worker.machine_id)))
}

/** Has the registry of a deploy server run, for the workers that pull an image from it. */
export async function ensureRegistry(deployServerId: string): Promise<void> {
  const { host_id, machine_id } = await platform.registryPlace(deployServerId)
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

/** Builds an image on the worker, and pushes it to the deploy server's registry. Of a pushed image, there is only the rest to do. */
export const createBuild = durable<{ pushed?: true; deploy_server_id?: string }>(
  async ({ id, input, undo, progress, afterwards }) => {
    if (input.pushed && input.deploy_server_id !== undefined) {
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
      // A build is long: it is not begun again for ever.
      retry: { initialInterval: '1 s', maximumInterval: '10 s', maximumAttempts: 10 },
    })
    const image = await cancelled(host.buildImageOnHost(deploy_server_id, id, place.machine_id))
    await platform.endBuild(id, image)
    const removal = () => tidy(deploy_server_id, place)
    if (patched('nobody waits for the removal of images')) afterwards(removal)
    else {
      progress('removing images that are no longer needed')
      await removal().catch(() => undefined)
    }
    return { status: 'succeeded' }
  },
  { onFailure: 'failed', onCancel: 'cancelled' },
)

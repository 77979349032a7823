import { proxyLocalActivities } from '@temporalio/workflow'
import type { ArtifactActivities } from '../../activities/deploy/artifacts.ts'
import { durable } from '../durable.ts'
import { on } from '../hosts.ts'

const platform = proxyLocalActivities<ArtifactActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** Unpacks an archive on the worker that builds. */
export const createArtifact = durable(
  async ({ id, undo, progress }) => {
    undo(() => platform.dropArchive(id))
    const { deploy_server_id, folder, place } = await platform.beginPush(id)
    progress(`unpacking the archive on ${place.node}`)
    undo(() => on(place.host_id).removeArtifactOnHost(place.machine_id, folder, id))
    const unpacked = await on(place.host_id).unpackArtifactOnHost(
      deploy_server_id,
      id,
      place.machine_id,
      folder,
    )
    await platform.endPush(id, unpacked)
    await platform.dropArchive(id)
    return { status: 'ready' }
  },
  { onFailure: 'failed', onCancel: 'cancelled' },
)

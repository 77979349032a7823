import { proxyLocalActivities } from '@temporalio/workflow'
import type { ArtifactActivities } from '../../activities/deploy/artifacts.ts'
import { durable } from '../durable.ts'
import { on } from '../hosts.ts'
import { awaitUpload } from '../uploads.ts'

const platform = proxyLocalActivities<ArtifactActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

async function removeUpload(id: string): Promise<void> {
  const place = await platform.uploadPlace(id)
  if (place) await on(place.host_id).removeUploadOnHost(place.machine_id, id)
}

/** Unpacks an archive on the worker that builds, once it is there. */
export const createArtifact = durable<{ upload?: true }>(
  async ({ id, input, undo, progress }) => {
    undo(() => platform.dropArchive(id))
    if (input.upload) {
      undo(() => removeUpload(id))
      progress('waiting for the archive')
      await awaitUpload('The archive', () => platform.uploadOf(id))
    }
    const { deploy_server_id, folder, sha256, place } = await platform.beginPush(id)
    progress(`unpacking the archive on ${place.node}`)
    const host = on(place.host_id)
    undo(() => on(place.host_id).removeArtifactOnHost(place.machine_id, folder, id))
    if (input.upload) {
      const unpacked = await host.unpackUploadOnHost(id, place.machine_id, folder, sha256)
      await platform.noteDigest(id, unpacked.sha256)
      await platform.endPush(id, unpacked)
      await removeUpload(id)
    } else {
      const unpacked = await host.unpackArtifactOnHost(deploy_server_id, id, place.machine_id, folder)
      await platform.endPush(id, unpacked)
    }
    await platform.dropArchive(id)
    return { status: 'ready' }
  },
  { onFailure: 'failed', onCancel: 'cancelled' },
)

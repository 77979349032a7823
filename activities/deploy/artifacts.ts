import { ApplicationFailure } from '@temporalio/activity'
import type { PlaceOnHost, Unpacked } from '../../lib/deploy-protocol.ts'
import { Artifact, builder, dropArchive } from '../../models/deploy/artifacts.ts'
import { DeployServer } from '../../models/deploy/deploy-servers.ts'
import { onHosts } from '../../models/deploy/replicas.ts'
import { everyTenant } from '../../models/tenant-scope.ts'

/** What a workflow knows of an artifact. */
export interface ArtifactFacts {
  deploy_server_id: string
  folder: string
  place: PlaceOnHost
}

/** Activities of artifacts: short reads and writes of MongoDB. */
export const makeArtifactActivities = () => ({
  /** Throws `machine_missing` if the worker is on no host. */
  async beginPush(id: string): Promise<ArtifactFacts> {
    const artifact = await Artifact.findById(id).setOptions(everyTenant).lean()
    const server =
      artifact && (await DeployServer.findById(artifact.deploy_server_id).setOptions(everyTenant).lean())
    const node = server?.nodes.find(({ name }) => name === builder)
    const [place] = await onHosts([{ machine_id: node?.machine_id ?? '', service_id: '', node: builder }])
    if (!artifact || !place)
      throw ApplicationFailure.nonRetryable('The worker that builds is not there', 'machine_missing')
    await Artifact.updateOne({ _id: id }, { $set: { pushing: true, worker: builder } }).setOptions(
      everyTenant,
    )
    const { deploy_server_id, folder } = artifact
    return { deploy_server_id, folder, place }
  },

  async endPush(id: string, { path, files, bytes }: Unpacked): Promise<void> {
    await Artifact.updateOne({ _id: id }, { $set: { path, files, unpacked_bytes: bytes } }).setOptions(
      everyTenant,
    )
  },

  dropArchive,
})

export type ArtifactActivities = ReturnType<typeof makeArtifactActivities>

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
  sha256: string | null
  place: PlaceOnHost
}

/** Activities of artifacts: short reads and writes of MongoDB. */
export const makeArtifactActivities = () => ({
  /** Throws `machine_missing` if the worker is on no host. */
  async beginPush(id: string): Promise<ArtifactFacts> {
    const artifact = await Artifact.findById(id).setOptions(everyTenant).lean()
    const place = artifact && (await builderPlace(artifact.deploy_server_id))
    if (!artifact || !place)
      throw ApplicationFailure.nonRetryable('The build worker is not available', 'machine_missing')
    await Artifact.updateOne({ _id: id }, { $set: { pushing: true, worker: builder } }).setOptions(
      everyTenant,
    )
    const { deploy_server_id, folder, sha256 } = artifact
    return { deploy_server_id, folder, sha256, place }
  },

  async endPush(id: string, { path, files, bytes }: Unpacked): Promise<void> {
    await Artifact.updateOne({ _id: id }, { $set: { path, files, unpacked_bytes: bytes } }).setOptions(
      everyTenant,
    )
  },

  dropArchive,

  /** `gone`: it was not sent in time. */
  async uploadOf(id: string): Promise<'whole' | 'open' | 'gone'> {
    const { upload } = (await Artifact.findById(id).setOptions(everyTenant).lean()) ?? {}
    if (upload?.whole) return 'whole'
    return upload && upload.expires_at > new Date() ? 'open' : 'gone'
  },

  /** Where parts of the archive may be. Null: the worker is on no host, and so has none. */
  async uploadPlace(id: string): Promise<PlaceOnHost | null> {
    const artifact = await Artifact.findById(id).setOptions(everyTenant).lean()
    return artifact && (await builderPlace(artifact.deploy_server_id))
  },

  async noteDigest(id: string, sha256: string): Promise<void> {
    await Artifact.updateOne({ _id: id, sha256: null }, { $set: { sha256 } }).setOptions(everyTenant)
  },
})

/** Null if the worker that builds is on no host. */
async function builderPlace(deployServerId: string): Promise<PlaceOnHost | null> {
  const server = await DeployServer.findById(deployServerId).setOptions(everyTenant).lean()
  const node = server?.nodes.find(({ name }) => name === builder)
  const [place] = await onHosts([{ machine_id: node?.machine_id ?? '', service_id: '', node: builder }])
  return place ?? null
}

export type ArtifactActivities = ReturnType<typeof makeArtifactActivities>

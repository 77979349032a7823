import { ApplicationFailure } from '@temporalio/activity'
import type { BuiltImage, PlaceOnHost } from '../../lib/deploy-protocol.ts'
import { builder } from '../../models/deploy/artifacts.ts'
import { Build, type BuildDocument } from '../../models/deploy/builds.ts'
import { noteImagesGone } from '../../models/deploy/built-images.ts'
import { DeployServer, type DeployServerDocument } from '../../models/deploy/deploy-servers.ts'
import { makeRegistryPassword } from '../../models/deploy/registries.ts'
import { onHosts } from '../../models/deploy/replicas.ts'
import { everyTenant } from '../../models/tenant-scope.ts'

/** What a workflow knows of a build. */
export interface BuildFacts {
  deploy_server_id: string
  timeout_sec: number
  /** The worker that builds. */
  place: PlaceOnHost
}

/** Activities of builds: short reads and writes of MongoDB. */
export const makeBuildActivities = () => ({
  /** Throws `machine_missing` if the worker that builds is on no host. */
  async beginBuild(id: string): Promise<BuildFacts> {
    const build = await theBuild(id)
    const { deploy_server_id, timeout_sec } = build
    const place = await builderOf(await theServer(deploy_server_id))
    await makeRegistryPassword(deploy_server_id)
    await Build.updateOne({ _id: id }, { $set: { started_at: build.started_at ?? new Date() } }).setOptions(
      everyTenant,
    )
    return { deploy_server_id, timeout_sec, place }
  },

  /** Forgets the secrets. Without an image, whatever was pushed is to leave. */
  async endBuild(id: string, image: BuiltImage | null): Promise<void> {
    const image_state = image ? ('kept' as const) : ('leaving' as const)
    const ended = { secrets_sealed: '-', ended_at: new Date() }
    await Build.updateOne({ _id: id }, { $set: { ...image, image_state, ...ended } }).setOptions(everyTenant)
  },

  /** The worker that builds, if this deployment's image is from a build: its registry must run. */
  async registryPlace(deployServerId: string): Promise<PlaceOnHost> {
    return builderOf(await theServer(deployServerId))
  },

  /** The workers that are on hosts. */
  async workerPlaces(deployServerId: string): Promise<PlaceOnHost[]> {
    const { nodes } = await theServer(deployServerId)
    const workers = nodes.filter(({ name }) => name !== 'cp')
    return onHosts(
      workers.map(({ name, machine_id }) => ({ machine_id: machine_id ?? '', service_id: '', node: name })),
    )
  },

  async noteImagesGone(deployServerId: string, ids: string[]): Promise<void> {
    await noteImagesGone(await theServer(deployServerId), ids)
  },
})

export type BuildActivities = ReturnType<typeof makeBuildActivities>

const gone = (what: string) => ApplicationFailure.nonRetryable(`The ${what} no longer exists`, 'not_found')

async function theBuild(id: string): Promise<BuildDocument> {
  const build = await Build.findById(id).setOptions(everyTenant).lean()
  if (!build) throw gone('build')
  return build
}

async function theServer(id: string): Promise<DeployServerDocument> {
  const server = await DeployServer.findById(id).setOptions(everyTenant).lean()
  if (!server) throw gone('deploy server')
  return server
}

async function builderOf({ nodes }: DeployServerDocument): Promise<PlaceOnHost> {
  const node = nodes.find(({ name }) => name === builder)
  const [place] = await onHosts([{ machine_id: node?.machine_id ?? '', service_id: '', node: builder }])
  if (!place) throw ApplicationFailure.nonRetryable('The worker that builds is not there', 'machine_missing')
  return place
}

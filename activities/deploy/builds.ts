import { ApplicationFailure } from '@temporalio/activity'
import type { BuiltImage, PlaceOnHost } from '../../lib/deploy-protocol.ts'
import { builder } from '../../models/deploy/artifacts.ts'
import { Build, type BuildDocument } from '../../models/deploy/builds.ts'
import { noteImagesGone } from '../../models/deploy/built-images.ts'
import { DeployServer, type DeployServerDocument } from '../../models/deploy/deploy-servers.ts'
import { Deployment } from '../../models/deploy/deployments.ts'
import { lacksImages, noteImagesOn } from '../../models/deploy/image-copies.ts'
import { trimBuilds } from '../../models/deploy/old-builds.ts'
import {
  makeRegistryPassword,
  otherRegistry,
  type RegistryNode,
  registryNodes,
} from '../../models/deploy/registries.ts'
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
    const place = await needPlace(await theServer(deploy_server_id), builder)
    await makeRegistryPassword(deploy_server_id)
    await Build.updateOne({ _id: id }, { $set: { started_at: build.started_at ?? new Date() } }).setOptions(
      everyTenant,
    )
    return { deploy_server_id, timeout_sec, place }
  },

  /** Forgets the secrets, and what is too old of former builds. Without an image, whatever was pushed is to leave. */
  async endBuild(id: string, image: BuiltImage | null): Promise<void> {
    const image_state = image ? ('kept' as const) : ('leaving' as const)
    const ended = { secrets_sealed: '-', ended_at: new Date() }
    const on = image ? { image_on: [builder] } : {}
    const set = { ...image, image_state, ...on, ...ended }
    const build = await Build.findOneAndUpdate({ _id: id }, { $set: set }).setOptions(everyTenant).lean()
    if (build) await trimBuilds({ _id: build.deploy_server_id, tenant_id: build.tenant_id })
  },

  /**
   * The machines whose registries lack images that another one has. Throws `image_lost` if the image of this build was
   * lost meanwhile.
   */
  async placesToCopyTo(deployServerId: string, buildId: string | null): Promise<RegistryPlace[]> {
    const server = await theServer(deployServerId)
    if (buildId !== null && (await theBuild(buildId)).image_state === 'gone')
      throw ApplicationFailure.nonRetryable(
        'The worker was lost before the image was copied: build it again',
        'image_lost',
      )
    const places = await Promise.all(
      registryNodes.map(async (node) => ((await lacksImages(server, node)) ? placeOf(server, node) : null)),
    )
    return places.flatMap((place) => place ?? [])
  },

  /** Records that a machine has the images of these builds. */
  async noteImagesOn(
    deployServerId: string,
    { node, machine_id }: RegistryPlace,
    ids: string[],
  ): Promise<void> {
    await noteImagesOn(await theServer(deployServerId), node, machine_id, ids)
  },

  /** The machine from whose registry a deployment's image is pulled; without one, the worker that builds. */
  async registryPlace(deployServerId: string, deploymentId: string | null = null): Promise<PlaceOnHost> {
    const deployment =
      deploymentId && (await Deployment.findById(deploymentId).setOptions(everyTenant).lean())
    return needPlace(await theServer(deployServerId), (deployment && deployment.pulls_from) || builder)
  },

  /** The machine with the copies of images. Null if it is on no host. */
  async copyPlace(deployServerId: string): Promise<PlaceOnHost | null> {
    return placeOf(await theServer(deployServerId), otherRegistry(builder))
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

/** A machine with a registry. */
export interface RegistryPlace extends PlaceOnHost {
  node: RegistryNode
}

async function placeOf({ nodes }: DeployServerDocument, node: RegistryNode): Promise<RegistryPlace | null> {
  const machine_id = nodes.find(({ name }) => name === node)?.machine_id ?? ''
  const [place] = await onHosts([{ machine_id, service_id: '', node }])
  return place ? { ...place, node } : null
}

async function needPlace(server: DeployServerDocument, node: RegistryNode): Promise<RegistryPlace> {
  const place = await placeOf(server, node)
  if (place) return place
  const what = node === builder ? 'The build worker is not available' : 'The control plane is not available'
  throw ApplicationFailure.nonRetryable(what, 'machine_missing')
}

import { z } from 'zod'
import {
  BuildLogPart,
  BuildOnHost,
  ImagesToCopy,
  ImagesToRemove,
  RegistryOnHost,
} from '../../lib/deploy-protocol.ts'
import { keepLogPart } from '../../models/deploy/build-logs.ts'
import { type BuildDocument, openBuild, openBuildSecrets } from '../../models/deploy/builds.ts'
import { imagesToRemove } from '../../models/deploy/built-images.ts'
import { imageNames, imagesToCopy } from '../../models/deploy/image-copies.ts'
import {
  builderOnHost,
  otherRegistry,
  type RegistryNode,
  registryOf,
  registryOnHost,
} from '../../models/deploy/registries.ts'
import type { DeployServerDocument } from '../../models/deploy/deploy-servers.ts'
import { builder } from '../../models/deploy/artifacts.ts'
import { own } from '../compute/host-protocol.ts'
import { Id } from '../fields.ts'
import { hostsOnly, operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'

// The internal API for builds and registries: only the hosts of their machines call it.

const byServer = z.strictObject({ id: Id, server_id: Id })
const byBuild = z.strictObject({ ...byServer.shape, build_id: Id })
const server = '/internal/v1/hosts/{id}/deploy-servers/{server_id}'
/** Without it, the worker that builds. */
const machine = z.strictObject({ machine_id: Id.optional() })
const permission = hostsOnly('only the host of the worker that builds gets the secrets of a build')
const gibibyte = 1024 ** 3
/** The part of a worker's disk that results of steps may fill. */
const cachePart = 0.2

const theRegistry = async (
  hostId: string,
  serverId: string,
  machineId: string | undefined,
): Promise<{ server: DeployServerDocument; node: RegistryNode }> =>
  machineId === undefined
    ? { server: await builderOnHost(hostId, serverId), node: builder }
    : registryOnHost(hostId, serverId, machineId)

export const makeBuildProtocol = ({ buildImages = { registry: '', base: {} } }: OperationsContext) => [
  operation({
    method: 'GET',
    path: `${server}/builds/{build_id}`,
    permission,
    summary: 'Get a build that is under way, with its secrets',
    params: byBuild,
    responses: { 200: BuildOnHost },
    handle: async ({ caller, params: { id, server_id, build_id } }) => {
      own(caller, id)
      const registry = await registryOf(await builderOnHost(id, server_id), buildImages.registry)
      const build = await openBuild(server_id, build_id)
      const { image, dockerfile, target, build_args, timeout_sec, folder, artifact_id } = build
      return {
        image,
        // This version of the files, whatever was pushed since.
        folder: `/opt/apps/.versions/${folder}/${artifact_id}`,
        dockerfile,
        target,
        build_args,
        secrets: await openBuildSecrets(build),
        timeout_sec,
        base_images: buildImages.base,
        nixpacks: buildImages.nixpacks ?? null,
        registry,
      }
    },
  }),

  operation({
    method: 'POST',
    path: `${server}/builds/{build_id}/log-parts`,
    permission: hostsOnly('only the host of the worker that builds writes the logs of builds'),
    summary: 'Add lines to the log of a build',
    params: byBuild,
    body: BuildLogPart,
    responses: { 204: null },
    handle: async ({ caller, params: { id, server_id, build_id }, body }) => {
      own(caller, id)
      await builderOnHost(id, server_id)
      await keepLogPart(await openBuild(server_id, build_id), body)
    },
  }),

  operation({
    method: 'GET',
    path: `${server}/registry`,
    permission,
    summary: 'Get the registry on a machine of a deploy server, with its users',
    params: byServer,
    query: machine,
    responses: { 200: RegistryOnHost },
    handle: async ({ caller, params: { id, server_id }, query: { machine_id } }) => {
      own(caller, id)
      const found = await theRegistry(id, server_id, machine_id)
      return registryOf(found.server, buildImages.registry, found.node)
    },
  }),

  operation({
    method: 'POST',
    path: `${server}/images-to-remove`,
    permission,
    summary: 'Get the images that the registry on a machine of a deploy server no longer needs',
    params: byServer,
    query: machine,
    responses: { 200: ImagesToRemove },
    handle: async ({ caller, params: { id, server_id }, query: { machine_id } }) => {
      own(caller, id)
      const { server: found, node } = await theRegistry(id, server_id, machine_id)
      const { leaving, kept_digests, kept_ids, open } = await imagesToRemove(found)
      const disk_gib = found.nodes.find(({ name }) => name === builder)?.disk_gib ?? 0
      return {
        registry: await registryOf(found, buildImages.registry, node),
        images: leaving.map(toImage),
        kept: { digests: kept_digests, images: open.map(toImage), ids: kept_ids },
        cache_bytes: Math.floor(disk_gib * cachePart * gibibyte),
      }
    },
  }),

  operation({
    method: 'GET',
    path: `${server}/images-to-copy`,
    permission: hostsOnly('only the host of a machine with a registry copies images to it'),
    summary: 'Get the images that the registry on a machine of a deploy server lacks',
    params: byServer,
    query: z.strictObject({ machine_id: Id }),
    responses: { 200: ImagesToCopy },
    handle: async ({ caller, params: { id, server_id }, query: { machine_id } }) => {
      own(caller, id)
      const { server: found, node } = await registryOnHost(id, server_id, machine_id)
      const lacking = await imagesToCopy(found, node)
      return {
        from: await registryOf(found, buildImages.registry, otherRegistry(node)),
        to: await registryOf(found, buildImages.registry, node),
        images: lacking.map((build) => ({ ...toImage(build), digest: build.digest ?? '' })),
        names: await imageNames(found),
      }
    },
  }),
]

const toImage = ({ _id, image }: BuildDocument) => ({ image, build_id: _id })

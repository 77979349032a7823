import { z } from 'zod'
import { BuildLogPart, BuildOnHost, ImagesToRemove, RegistryOnHost } from '../../lib/deploy-protocol.ts'
import { keepLogPart } from '../../models/deploy/build-logs.ts'
import { type BuildDocument, openBuild, openBuildSecrets } from '../../models/deploy/builds.ts'
import { imagesToRemove } from '../../models/deploy/built-images.ts'
import { builderOnHost, registryOf } from '../../models/deploy/registries.ts'
import { builder } from '../../models/deploy/artifacts.ts'
import { own } from '../compute/host-protocol.ts'
import { Id } from '../fields.ts'
import { hostsOnly, operation } from '../operation.ts'
import type { OperationsContext } from '../operations.ts'

// The internal API for builds: only the host of the worker that builds calls it.

const byServer = z.strictObject({ id: Id, server_id: Id })
const byBuild = z.strictObject({ ...byServer.shape, build_id: Id })
const server = '/internal/v1/hosts/{id}/deploy-servers/{server_id}'
const permission = hostsOnly('only the host of the worker that builds gets the secrets of a build')
const gibibyte = 1024 ** 3
/** The part of a worker's disk that results of steps may fill. */
const cachePart = 0.2

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
    summary: 'Get the registry of a deploy server, with its users',
    params: byServer,
    responses: { 200: RegistryOnHost },
    handle: async ({ caller, params: { id, server_id } }) => {
      own(caller, id)
      return registryOf(await builderOnHost(id, server_id), buildImages.registry)
    },
  }),

  operation({
    method: 'POST',
    path: `${server}/images-to-remove`,
    permission,
    summary: 'Get the images that the registry of a deploy server no longer needs',
    params: byServer,
    responses: { 200: ImagesToRemove },
    handle: async ({ caller, params: { id, server_id } }) => {
      own(caller, id)
      const found = await builderOnHost(id, server_id)
      const { leaving, kept_digests, kept_ids, open } = await imagesToRemove(found)
      const disk_gib = found.nodes.find(({ name }) => name === builder)?.disk_gib ?? 0
      return {
        registry: await registryOf(found, buildImages.registry),
        images: leaving.map(toImage),
        kept: { digests: kept_digests, images: open.map(toImage), ids: kept_ids },
        cache_bytes: Math.floor(disk_gib * cachePart * gibibyte),
      }
    },
  }),
]

const toImage = ({ _id, image }: BuildDocument) => ({ image, build_id: _id })

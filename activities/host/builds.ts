import { cancellationSignal } from '@temporalio/activity'
import { dockerfileFor, ignoreOf, manifestNames } from '../../drivers/dockerfiles/choice.ts'
import { BuildFailed } from '../../drivers/errors.ts'
import type {
  BuildOrder,
  CopyImage,
  CopyImages,
  ForgetImages,
  ImageBuilds,
  MachineRegistries,
  Nixpacks,
  ReadFolder,
} from '../../drivers/image-builds.ts'
import type {
  BuildLogPart,
  BuildOnHost,
  BuiltImage,
  ImagesToCopy,
  ImagesToRemove,
  RegistryOnHost,
} from '../../lib/deploy-protocol.ts'
import { makeBuildLog } from './build-log.ts'

interface Parts {
  builds: ImageBuilds
  registries: MachineRegistries
  copy: CopyImage
  copyImages: CopyImages
  read: ReadFolder
  nixpacks: Nixpacks
  forget: ForgetImages
  api: {
    build(deployServerId: string, buildId: string): Promise<BuildOnHost>
    logPart(deployServerId: string, buildId: string, part: BuildLogPart): Promise<void>
    registry(deployServerId: string, machineId: string): Promise<RegistryOnHost>
    imagesToRemove(deployServerId: string, machineId: string): Promise<ImagesToRemove>
    imagesToCopy(deployServerId: string, machineId: string): Promise<ImagesToCopy>
  }
}

/** Activities of builds, on the host of the worker that builds. All are idempotent. */
export function makeBuildsOnHost({
  builds,
  registries,
  copy,
  copyImages,
  read,
  nixpacks,
  forget,
  api,
}: Parts) {
  /** The Dockerfile of the artifact, or one that is generated for it, and what it needs. */
  async function choose(
    machineId: string,
    id: string,
    wanted: BuildOnHost,
    say: (line: string) => void,
  ): Promise<Pick<BuildOrder, 'dockerfile' | 'folder' | 'build_args'> & { generated: string | null }> {
    const { folder, dockerfile, build_args, base_images } = wanted
    const own = (path: string) => {
      say(`building with the artifact’s ${path}`)
      return { dockerfile: { path }, folder, build_args, generated: null }
    }
    if (dockerfile !== null) return own(dockerfile)
    const found = await read(machineId, folder, manifestNames)
    if (found.paths.includes('Dockerfile')) return own('Dockerfile')
    const show = (text: string): void => {
      for (const line of text.trimEnd().split('\n')) say(`  ${line}`)
    }
    const have = async (image: string): Promise<void> => {
      if ((await copy(machineId, image, cancellationSignal())) === 'copied')
        say(`${image} was copied from the host`)
    }
    if (wanted.nixpacks) {
      const { image, base_image } = wanted.nixpacks
      say('the artifact has no Dockerfile; the operator has chosen Nixpacks to make one:')
      await have(image)
      if (base_image !== null) await have(base_image)
      const order = { id, folder, image, base_image }
      const { said, text, ...planned } = await nixpacks.plan(machineId, order, cancellationSignal())
      for (const line of said) say(line)
      show(text)
      return {
        dockerfile: { text, ignore: ignoreOf(found) },
        folder: planned.folder,
        build_args: { ...planned.build_args, ...build_args },
        generated: 'Nixpacks',
      }
    }
    const choice = dockerfileFor(found, base_images)
    if ('nothing' in choice) throw new BuildFailed(choice.nothing, 'nothing_recognised')
    say(`the artifact has no Dockerfile; this one is for ${choice.kind}:`)
    for (const reason of choice.reasons) say(`- ${reason}`)
    show(choice.text)
    for (const image of choice.images) await have(image)
    const { text, ignore, kind: generated } = choice
    return { dockerfile: { text, ignore }, folder, build_args, generated }
  }

  return {
    /** Makes the registry of this machine, or finds it. */
    async ensureRegistryOnHost(deployServerId: string, machineId: string): Promise<void> {
      await registries.ensure(machineId, await api.registry(deployServerId, machineId), cancellationSignal())
    },

    /**
     * Copies the images that the registry of this machine lacks from the other one. Returns the ids of their builds: an
     * image that left the other one meanwhile is not among them. Throws MachineDiskFull.
     */
    async copyImagesOnHost(deployServerId: string, machineId: string): Promise<string[]> {
      const { from, to, images, names } = await api.imagesToCopy(deployServerId, machineId)
      if (images.length === 0) return []
      const wanted = { images: images.map((one) => ({ ...tagOf(one), digest: one.digest })), names }
      const signal = cancellationSignal()
      // No images are removed meanwhile: that takes the same turn.
      return builds.between(machineId, async () => {
        await registries.ensure(machineId, to, signal)
        return copyImages(machineId, { from, to }, wanted, signal)
      })
    },

    /** Builds an image and pushes it. Throws BuildFailed, MachineDiskFull. */
    async buildImageOnHost(deployServerId: string, id: string, machineId: string): Promise<BuiltImage> {
      const signal = cancellationSignal()
      const wanted = await api.build(deployServerId, id)
      const { registry, image, target, secrets, timeout_sec } = wanted
      const log = makeBuildLog(Object.values(secrets), (part) => api.logPart(deployServerId, id, part))
      // Only the push needs the registry.
      const ready = registries.ensure(machineId, registry, signal)
      ready.catch(() => {}) // the build may fail first
      try {
        const { generated, ...chosen } = await choose(machineId, id, wanted, log.say)
        const reference = `${registry.ip_address}:${registry.port}/${image}:${id}`
        const order = { ...chosen, id, reference, target, secrets, timeout_sec }
        const push = async () => {
          await ready
          log.say('pushing the image to the registry of the deploy server')
          return registries.push(machineId, registry, reference, signal)
        }
        const pushed = await builds.run(machineId, order, push, log.say, signal)
        log.say(`the image is ${pushed.digest}`)
        return { ...pushed, generated }
      } catch (error) {
        log.say(signal.aborted ? 'the build was cancelled' : log.redacted(wordsOf(error)))
        if (error instanceof BuildFailed) throw new BuildFailed(log.redacted(error.message), error.code)
        throw error
      } finally {
        await Promise.allSettled([ready, log.end(), wanted.nixpacks && nixpacks.remove(machineId, id)])
      }
    },

    /** Waits until a build that was interrupted has ended. */
    async endBuildOnHost(machineId: string, id: string): Promise<void> {
      await builds.end(machineId, id)
      await nixpacks.remove(machineId, id)
    },

    /** Removes images that a worker has pulled and no longer uses. */
    forgetImagesOnHost: (machineId: string): Promise<void> => forget(machineId),

    /** Removes the images that the platform no longer needs from this machine. Returns the ids of their builds. */
    async tidyImagesOnHost(deployServerId: string, machineId: string): Promise<string[]> {
      return builds.between(machineId, async () => {
        const { registry, images, kept, cache_bytes } = await api.imagesToRemove(deployServerId, machineId)
        if (images.length) {
          await registries.ensure(machineId, registry, cancellationSignal())
          const removed = await registries.remove(machineId, registry, images.map(tagOf), {
            digests: kept.digests,
            images: kept.images.map(tagOf),
            tags: kept.ids,
          })
          if (!removed) return []
        }
        await builds.prune(machineId, cache_bytes)
        return images.map(({ build_id }) => build_id)
      })
    },
  }
}

const tagOf = ({ image, build_id }: { image: string; build_id: string }) => ({ image, tag: build_id })

const wordsOf = (error: unknown): string => (error instanceof Error ? error.message : String(error))

import { cancellationSignal, heartbeat } from '@temporalio/activity'
import type {
  BindMount,
  ContainerEngine,
  ContainerSpec,
  FoundContainer,
  RegistryLogin,
} from '../../drivers/containers.ts'
import { ImageNotFound } from '../../drivers/errors.ts'
import type { HostedDisks } from './disk-mounts.ts'
import type { Networks } from './networks.ts'
import { turn, type Turns } from './turns.ts'

interface Parts {
  engine: ContainerEngine
  /** Fetched when the container is created, so that secrets never pass through Temporal. */
  configVars: (instanceId: string) => Promise<Record<string, string>>
  /** The tenant's login at the registry of the instance's image. */
  registryLogin: (instanceId: string) => Promise<RegistryLogin | null>
  hosted: HostedDisks
  networks: Pick<Networks, 'ready' | 'attachTo'>
  /** The ways out of containers without a network. */
  doors: Doors
  /** Starts and removals. */
  turns: Pick<Turns, 'take'>
}

interface Doors {
  hold<T>(
    containerId: string,
    runnerId: string,
    start: (doorway: { mount: BindMount; vars: Record<string, string> }) => Promise<T>,
  ): Promise<T>
  remove(containerId: string): Promise<void>
}

/** A container with its disks. */
type Ordered = ContainerSpec & { disks?: { disk_id: string; mount_path: string; read_only: boolean }[] }

/**
 * Container activities of a host. This worker or the next may repeat each step: it checks the present state before it
 * acts. Errors are those of drivers/errors.ts.
 */
export function makeContainersOnHost({
  engine,
  configVars,
  registryLogin,
  hosted,
  networks,
  doors,
  turns,
}: Parts) {
  const pull = (image: string, digest: string | null, id: string): Promise<{ image_digest: string }> =>
    engine.pull(image, {
      digest,
      login: () => registryLogin(id),
      onProgress: heartbeat,
      signal: cancellationSignal(),
    })

  return {
    /** Makes the image present for an instance. With a digest, pulls exactly those bytes. */
    pullImageOnHost: pull,

    /**
     * Pulls the image and starts the container, or finds it running. Can be cancelled only while it waits for its
     * turn: a start that has begun completes, so an undo never overtakes it.
     */
    async runContainerOnHost({ disks = [], ...spec }: Ordered, operationId: string): Promise<FoundContainer> {
      const [{ image_digest }, vars] = await Promise.all([
        pull(spec.image, spec.image_digest, spec.id),
        configVars(spec.id),
        spec.network ? networks.ready(spec.id) : undefined,
      ])
      const onNetwork = (pid: number): Promise<void> => networks.attachTo(spec.id, pid)
      return turns.take(
        async () => {
          const mounts = await hosted.mountsFor(spec.id, disks, operationId)
          const run = (all: BindMount[], env: Record<string, string>) =>
            withImage(
              () => engine.run({ ...spec, image_digest, mounts: all }, env, operationId, onNetwork),
              () => pull(spec.image, image_digest, spec.id),
            )
          if (!spec.runner) return run(mounts, vars)
          return doors.hold(spec.id, spec.runner, (doorway) =>
            run([...mounts, doorway.mount], { ...vars, ...doorway.vars }),
          )
        },
        ...turn(),
      )
    },

    /**
     * Stops the container, detaches its disks and returns its exit code; null if it is gone. A cancelled call stops
     * waiting; the container still ends.
     */
    async stopContainerOnHost(id: string, graceSec: number, diskIds: string[] = []): Promise<number | null> {
      await engine.stop(id, graceSec, cancellationSignal())
      await hosted.detachAll(diskIds)
      return (await engine.find(id))?.exit_code ?? null
    },

    resizeContainerOnHost: (id: string, size: Parameters<ContainerEngine['resize']>[1]): Promise<void> =>
      engine.resize(id, size),

    /**
     * Removes the container and everything it left on this host. Archives its output first, unless `discard` is set.
     * Succeeds if there is no container.
     */
    async removeContainerOnHost(
      id: string,
      options: { discard?: boolean; disk_ids?: string[] } = {},
    ): Promise<void> {
      const { discard = false, disk_ids = [] } = options
      await turns.take(() => engine.remove(id, { discard }), ...turn())
      await hosted.detachAll(disk_ids)
      await doors.remove(id)
    },

    findContainerOnHost: (id: string): Promise<FoundContainer | null> => engine.find(id),
  }
}

/**
 * Runs what needs an image that was pulled before. If the image has gone since (somebody removed it, or another host of
 * the same engine), pulls it and runs once more.
 */
export async function withImage<T>(run: () => Promise<T>, pull: () => Promise<unknown>): Promise<T> {
  try {
    return await run()
  } catch (error) {
    if (!(error instanceof ImageNotFound)) throw error
    await pull()
    return run()
  }
}

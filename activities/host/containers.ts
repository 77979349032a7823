import { availableParallelism } from 'node:os'
import { cancellationSignal, heartbeat } from '@temporalio/activity'
import type { ContainerEngine, ContainerSpec, FoundContainer } from '../../drivers/containers.ts'
import { makeQueue } from '../../lib/queue.ts'
import type { HostedDisks } from './disk-mounts.ts'
import type { Networks } from './networks.ts'

interface Parts {
  engine: ContainerEngine
  /** Fetched when the container is made, so that secrets never pass through Temporal. */
  configVars: (instanceId: string) => Promise<Record<string, string>>
  hosted: HostedDisks
  networks: Pick<Networks, 'ready' | 'attachTo'>
}

/** With the disks that it is to have. */
type Ordered = ContainerSpec & { disks?: { disk_id: string; mount_path: string; read_only: boolean }[] }

// The engine spends CPU on each start, and slows all of them down when there are many: 40 at once took 39 s
// on two cores, four at a time 8 s.
const startsAtOnce = 2 * availableParallelism()

/**
 * What a host does with containers. Each step may be run again, by this worker or the next: it looks before
 * it acts. The faults are drivers/errors.ts.
 */
export function makeContainersOnHost({ engine, configVars, hosted, networks }: Parts) {
  const inSlot = makeQueue(startsAtOnce)
  const pull = (image: string, digest: string | null = null): Promise<{ image_digest: string }> =>
    engine.pull(image, { digest, onProgress: heartbeat, signal: cancellationSignal() })

  return {
    /** Makes the image present. With a digest, the very bytes that the name once stood for. */
    pullImageOnHost: pull,

    /**
     * Brings the container up, image and all, or finds it up. Called off only until its turn has come: once
     * begun it is seen through, so that an undo never overtakes it.
     */
    async runContainerOnHost({ disks = [], ...spec }: Ordered, operationId: string): Promise<FoundContainer> {
      const [{ image_digest }, vars] = await Promise.all([
        pull(spec.image, spec.image_digest),
        configVars(spec.id),
        spec.network ? networks.ready(spec.id) : undefined,
      ])
      const onNetwork = (pid: number): Promise<void> => networks.attachTo(spec.id, pid)
      return inSlot(async () => {
        const mounts = await hosted.mountsFor(spec.id, disks, operationId)
        return engine.run({ ...spec, image_digest, mounts }, vars, operationId, onNetwork)
      }, cancellationSignal())
    },

    /** Its exit code; null when it is not there. Called off, it still ends, but nobody waits for it. Its disks are free then. */
    async stopContainerOnHost(id: string, graceSec: number, diskIds: string[] = []): Promise<number | null> {
      await engine.stop(id, graceSec, cancellationSignal())
      await hosted.detachAll(diskIds)
      return (await engine.find(id))?.exit_code ?? null
    },

    resizeContainerOnHost: (id: string, size: Parameters<ContainerEngine['resize']>[1]): Promise<void> =>
      engine.resize(id, size),

    /**
     * Removes the container and all it left on this host; its output is archived first, unless that is to go as well.
     * Succeeds when there is nothing to remove.
     */
    async removeContainerOnHost(
      id: string,
      options: { discard?: boolean; disk_ids?: string[] } = {},
    ): Promise<void> {
      const { discard = false, disk_ids = [] } = options
      await inSlot(() => engine.remove(id, { discard }), cancellationSignal())
      await hosted.detachAll(disk_ids)
    },

    findContainerOnHost: (id: string): Promise<FoundContainer | null> => engine.find(id),
  }
}

import { availableParallelism } from 'node:os'
import { cancellationSignal, heartbeat } from '@temporalio/activity'
import type { ContainerEngine, ContainerSpec, FoundContainer } from '../../drivers/containers.ts'
import { makeTurns } from './turns.ts'

interface Parts {
  engine: ContainerEngine
  /** Fetched when the container is made, so that secrets never pass through Temporal. */
  configVars: (instanceId: string) => Promise<Record<string, string>>
}

// The engine spends CPU on each start, and slows all of them down when there are many: 40 at once took 39 s
// on two cores, four at a time 8 s.
const startsAtOnce = 2 * availableParallelism()

/**
 * What a host does with containers. Each step may be run again, by this worker or the next: it looks before
 * it acts. The faults are drivers/errors.ts.
 */
export function makeContainerActivities({ engine, configVars }: Parts) {
  const inTurn = makeTurns(startsAtOnce)
  const pull = (image: string, digest: string | null = null): Promise<{ image_digest: string }> =>
    engine.pull(image, { digest, onProgress: heartbeat, signal: cancellationSignal() })

  return {
    /** Makes the image present. With a digest, the very bytes that the name once stood for. */
    pullImage: pull,

    /**
     * Brings the container up, image and all, or finds it up. Called off only until its turn has come: once
     * begun it is seen through, so that an undo never overtakes it.
     */
    async runContainer(spec: ContainerSpec, operationId: string): Promise<FoundContainer> {
      const [{ image_digest }, vars] = await Promise.all([
        pull(spec.image, spec.image_digest),
        configVars(spec.id),
      ])
      return inTurn(() => engine.run({ ...spec, image_digest }, vars, operationId), cancellationSignal())
    },

    /** Its exit code; null when it is not there. Called off, it still ends, but nobody waits for it. */
    async stopContainer(id: string, graceSec: number): Promise<number | null> {
      await engine.stop(id, graceSec, cancellationSignal())
      return (await engine.find(id))?.exit_code ?? null
    },

    resizeContainer: (id: string, size: Parameters<ContainerEngine['resize']>[1]): Promise<void> =>
      engine.resize(id, size),

    /** Removes the container and all it left on this host. Succeeds when there is nothing to remove. */
    removeContainer: (id: string): Promise<void> => inTurn(() => engine.remove(id), cancellationSignal()),

    findContainer: (id: string): Promise<FoundContainer | null> => engine.find(id),
  }
}

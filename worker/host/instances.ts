import type { FoundInstance, InstanceEngine } from '../../drivers/instances.ts'
import type { ObservedInstance } from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import type { HostPart } from './part.ts'

// A full list costs one engine call per instance, so between lists only changed instances are read.
const listEveryMs = 60_000

type Engine = Pick<InstanceEngine, 'list' | 'find' | 'remove' | 'watch'>

/** Observes and removes the instances of one engine. `found` returns the last known ones. */
export type ObservedInstances = Required<Pick<HostPart, 'observe' | 'watch' | 'remove'>> & {
  found(): FoundInstance[]
}

/** Keeps the state of an engine's instances up to date by reading changed ones. */
export function observeInstances(engine: Engine, log: Logger): ObservedInstances {
  let found = new Map<string, FoundInstance>()
  let listedAt = 0
  const changed = new Set<string>()
  const removals = new Map<string, Promise<void>>()

  async function look(): Promise<void> {
    if (Date.now() - listedAt > listEveryMs) {
      listedAt = Date.now()
      changed.clear()
      found = new Map((await engine.list()).map((instance) => [instance.id, instance]))
      return
    }
    const ids = [...changed]
    changed.clear() // before reading, so that a change meanwhile is read again
    for (const id of ids) {
      const instance = await engine.find(id)
      if (instance) found.set(id, instance)
      else found.delete(id)
    }
  }

  return {
    found: () => [...found.values()],

    async observe() {
      try {
        await look()
      } catch (error) {
        listedAt = 0
        throw error
      }
      return [...found.values()].map(toObserved)
    },

    async watch(onChange, signal) {
      const onEvent = (id: string | null): void => {
        if (id === null) listedAt = 0
        else changed.add(id)
        onChange()
      }
      await engine.watch(onEvent, signal)
      await Promise.all(removals.values()) // before the engine is closed
    },

    /** Removes only the reported instances: a recreated one has another engine id. */
    remove(ids) {
      for (const id of ids.filter((one) => !removals.has(one))) {
        log.warn({ instance_id: id }, 'removing an instance that is not this host’s any more')
        // Not awaited, because archiving the output may take long.
        const removal = engine
          .remove(id, { engineId: found.get(id)?.engine_id })
          .catch((error: unknown) => log.warn({ err: error, instance_id: id }, 'not removed; trying again'))
          .finally(() => removals.delete(id))
        removals.set(id, removal)
      }
    },
  }
}

const toObserved = (found: FoundInstance): ObservedInstance => ({
  id: found.id,
  kind: found.kind,
  state: found.state,
  exit_code: found.exit_code,
  oom_killed: found.oom_killed,
  restart_count: found.restart_count,
  started_at: found.started_at,
  health: found.health,
  ended_by: found.ended_by ?? null,
})

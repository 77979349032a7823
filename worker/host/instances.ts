import { type FoundInstance, type InstanceEngine, isMachine } from '../../drivers/instances.ts'
import type { ObservedInstance } from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'
import { makeQueue } from '../../lib/queue.ts'
import type { HostPart } from './part.ts'

// Reading all costs one engine call per instance, so in between only changed instances are read.
const listEveryMs = 60_000
// Enough to keep an engine busy during round trips; it works on few requests at a time.
const readsAtOnce = 8
// Usually some ms. An engine that is starting a container does not tell of it before it is done.
const readWithinMs = 5_000
// Shorter than a report waits, so that an engine with many changes is reported as far as it told.
const lookWithinMs = 8_000

type Engine = Pick<InstanceEngine, 'ids' | 'find' | 'remove' | 'watch'>

/** Observes and removes the instances of one engine. `found` returns the last known ones. */
export type ObservedInstances = Required<Pick<HostPart, 'observe' | 'watch' | 'remove'>> & {
  found(): FoundInstance[]
}

/**
 * Keeps the state of an engine's instances up to date by reading changed ones. One that the engine does not tell of in
 * time is `unknown` until it does, and delays no other.
 */
export function observeInstances(engine: Engine, log: Logger): ObservedInstances {
  const found = new Map<string, FoundInstance>()
  let listedAt = 0
  const changed = new Set<string>()
  const unknown = new Set<string>()
  const removals = new Map<string, Promise<void>>()

  async function read(id: string, inTime: AbortSignal): Promise<void> {
    changed.delete(id) // before reading, so that a change meanwhile is read again
    const signal = AbortSignal.any([inTime, AbortSignal.timeout(readWithinMs)])
    try {
      const instance = await engine.find(id, signal)
      if (instance) found.set(id, instance)
      else found.delete(id)
      unknown.delete(id)
    } catch (error) {
      changed.add(id)
      unknown.add(id)
      if (!signal.aborted) throw error
    }
  }

  async function look(): Promise<void> {
    const inTime = AbortSignal.timeout(lookWithinMs)
    if (Date.now() - listedAt > listEveryMs) {
      listedAt = Date.now()
      const ids = await engine.ids(inTime)
      for (const id of found.keys()) changed.add(id)
      for (const id of ids) changed.add(id)
    }
    const queue = makeQueue(readsAtOnce)
    const reads = [...changed].map((id) => queue(() => read(id, inTime)))
    // All of them end before the next look begins.
    const failed = (await Promise.allSettled(reads)).find(({ status }) => status === 'rejected')
    if (failed?.status === 'rejected') throw failed.reason
    if (unknown.size > 0)
      log.warn({ instances: unknown.size }, 'the engine did not describe some instances in time')
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
      const untold = [...unknown].filter((id) => !found.has(id)).map(neverSeen)
      const seen = [...found.values()].map(toObserved)
      return [...seen.map((one) => (unknown.has(one.id) ? { ...one, state: 'unknown' } : one)), ...untold]
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
          .catch((error: unknown) =>
            log.warn({ err: error, instance_id: id }, 'the instance was not removed; trying again'),
          )
          .finally(() => removals.delete(id))
        removals.set(id, removal)
      }
    },
  }
}

/** Told by an event or a list, and by nothing else yet. */
const neverSeen = (id: string): ObservedInstance => ({
  id,
  kind: 'container', // the kind of an instance is never compared
  state: 'unknown',
  exit_code: null,
  oom_killed: false,
  restart_count: 0,
  crash_looping: false,
  waits_for_room: false,
  layer_full: false,
  started_at: null,
  health: 'none',
  ended_by: null,
})

const toObserved = (found: FoundInstance): ObservedInstance => ({
  id: found.id,
  kind: found.kind,
  state: found.state,
  exit_code: found.exit_code,
  oom_killed: found.oom_killed,
  restart_count: found.restart_count,
  crash_looping: (found.kind === 'container' && found.crash_looping) || false,
  waits_for_room: isMachine(found) && found.full_disks.length > 0,
  layer_full: (found.kind === 'container' && found.layer_full) || false,
  started_at: found.started_at,
  health: found.health,
  ended_by: found.ended_by ?? null,
})

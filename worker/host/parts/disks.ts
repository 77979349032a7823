import type { HostedDisks } from '../../../activities/host/disk-mounts.ts'
import { type DiskApi, makeDisksOnHost } from '../../../activities/host/disks.ts'
import type { Disks, DiskTransfers } from '../../../drivers/disks.ts'
import type { FoundInstance, InstanceEngine } from '../../../drivers/instances.ts'
import { type ObservedDisk, WantedDisk } from '../../../lib/host-protocol.ts'
import type { Logger } from '../../../lib/log.ts'
import type { HostPart } from '../part.ts'

// What a host sees to itself: an instance that its engine has started again gets its disks back, one whose serving process
// was killed is brought back, and what is not this host's any more goes.

// Each look costs a read of /proc and some of each disk; reports may be five a second.
const lookEveryMs = 5_000

interface Parts {
  disks: Disks & DiskTransfers
  hosted: HostedDisks
  engine: Pick<InstanceEngine, 'find'>
  /** The instances that are here. */
  instances: () => FoundInstance[]
  api: DiskApi
  log: Logger
}

export function disksPart({ disks, hosted, engine, instances, api, log }: Parts): HostPart {
  let seen: ObservedDisk[] = []
  let lookedAt = 0
  /** In which run of its instance each disk was seen to be mounted. */
  const mountedIn = new Map<string, string>()
  const busy = new Set<string>()
  /** Brought back before a report could tell that they were broken, which their owners are to hear of. */
  const untold = new Set<string>()

  async function stateOf(id: string): Promise<ObservedDisk['state']> {
    // An entry that is no disk's name is a leftover of one, or nobody's.
    const found = await disks.find(id).catch(() => null)
    return found?.state ?? 'leftover'
  }

  /** `run`: in which run of its instance it is then mounted. */
  async function putRight(id: string, why: string, run?: string): Promise<void> {
    if (busy.has(id)) return // it is being seen to, or waits for its turn
    busy.add(id)
    try {
      if ((await stateOf(id)) === 'broken') untold.add(id)
      const now = await hosted.putRight(id)
      log.info({ disk_id: id, now }, why)
      lookedAt = 0
      if (now === 'attached' && run !== undefined) mountedIn.set(id, run)
    } catch (error) {
      log.warn({ err: error, disk_id: id }, `${why}: it did not work; trying again`)
    } finally {
      busy.delete(id)
    }
  }

  function see({ id, instance_id, state: wanted }: WantedDisk, here: Map<string, FoundInstance>): void {
    const state = seen.find((one) => one.id === id)?.state
    if (wanted === 'detached' && (state === 'attached' || state === 'broken'))
      void putRight(id, 'detaching a disk that nothing uses')
    const instance = wanted === 'attached' ? here.get(instance_id ?? '') : undefined
    if (instance?.state !== 'running' || !instance.pid) return
    const run = `${instance.engine_id} ${instance.pid}`
    if (state === 'attached' && mountedIn.get(id) === run) return
    void putRight(id, 'mounting a disk in its instance', run)
  }

  return {
    name: 'disks',
    kinds: ['disk'],
    activities: makeDisksOnHost({ disks, engine, hosted, api }),

    /** As of some seconds ago at most. */
    async observe() {
      if (Date.now() - lookedAt < lookEveryMs) return seen
      lookedAt = Date.now()
      const traces = await disks.list()
      seen = await Promise.all(
        traces.map(async ({ id }): Promise<ObservedDisk> => {
          const state = await stateOf(id)
          return { kind: 'disk', id, state: state === 'attached' && untold.has(id) ? 'broken' : state }
        }),
      )
      return seen
    },

    remove(ids) {
      for (const id of ids) void putRight(id, 'removing a disk that is not this host’s any more')
    },

    /** What fails is tried again with the next report. */
    bringAbout(things) {
      for (const { id, state } of seen) {
        if (state === 'broken' && untold.delete(id)) lookedAt = 0 // the next report tells that it is sound
      }
      const here = new Map(instances().map((instance) => [instance.id, instance]))
      for (const thing of things) see(WantedDisk.parse(thing), here)
    },
  }
}

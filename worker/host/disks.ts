import type { HostedDisks } from '../../activities/host/disk-mounts.ts'
import type { Disks } from '../../drivers/disks.ts'
import type { FoundInstance } from '../../drivers/instances.ts'
import type { DiskWish, ObservedDisk, ReportAnswer } from '../../lib/host-protocol.ts'
import type { Logger } from '../../lib/log.ts'

// What a host sees to itself: an instance that its engine has started again gets its disks back, one whose serving process
// was killed is brought back, and what is not this host's any more goes.

// Each look costs a read of /proc and some of each disk; reports may be five a second.
const lookEveryMs = 5_000

interface Parts {
  disks: Disks
  hosted: HostedDisks
  log: Logger
}

export type DiskKeeper = ReturnType<typeof makeDiskKeeper>

export function makeDiskKeeper({ disks, hosted, log }: Parts) {
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

  function see(wish: DiskWish, instances: Map<string, FoundInstance>): void {
    const { disk_id: id, instance_id, should } = wish
    const state = seen.find((one) => one.id === id)?.state
    if (should === 'detached' && (state === 'attached' || state === 'broken'))
      void putRight(id, 'detaching a disk that nothing uses')
    const instance = should === 'attached' ? instances.get(instance_id ?? '') : undefined
    if (instance?.state !== 'running' || !instance.pid) return
    const run = `${instance.engine_id} ${instance.pid}`
    if (state === 'attached' && mountedIn.get(id) === run) return
    void putRight(id, 'mounting a disk in its instance', run)
  }

  return {
    /** What there is of disks here, at most some seconds ago. */
    async look(): Promise<ObservedDisk[]> {
      if (Date.now() - lookedAt < lookEveryMs) return seen
      lookedAt = Date.now()
      const traces = await disks.list()
      seen = await Promise.all(
        traces.map(async ({ id }) => {
          const state = await stateOf(id)
          return { id, state: state === 'attached' && untold.has(id) ? 'broken' : state }
        }),
      )
      return seen
    },

    /** Begins what the answer to a report asks for. What fails is tried again with the next. */
    act({ disks: wishes, disks_not_yours }: ReportAnswer, found: FoundInstance[]): void {
      for (const id of disks_not_yours) void putRight(id, 'removing a disk that is not this host’s any more')
      for (const { id, state } of seen) {
        if (state === 'broken' && untold.delete(id)) lookedAt = 0 // the next report tells that it is sound
      }
      const instances = new Map(found.map((instance) => [instance.id, instance]))
      for (const wish of wishes) see(wish, instances)
    },
  }
}

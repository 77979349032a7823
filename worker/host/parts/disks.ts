import type { HostedDisks } from '../../../activities/host/disk-mounts.ts'
import { type DiskApi, makeDisksOnHost } from '../../../activities/host/disks.ts'
import type { Disks, DiskTransfers } from '../../../drivers/disks.ts'
import { type FoundInstance, type InstanceEngine, isMachine } from '../../../drivers/instances.ts'
import { type ObservedDisk, WantedDisk } from '../../../lib/host-protocol.ts'
import type { Logger } from '../../../lib/log.ts'
import type { HostPart } from '../part.ts'

// Repairs by the host itself: reattaches disks of restarted instances, restarts killed serving processes, and removes
// disks that no longer belong to this host.

// Each check reads /proc and parts of each disk, and there may be five reports a second.
const lookEveryMs = 5_000

interface Parts {
  disks: Disks & DiskTransfers
  hosted: HostedDisks
  engine: Pick<InstanceEngine, 'find'>
  /** The instances on this host. */
  instances: () => FoundInstance[]
  api: DiskApi
  log: Logger
}

export function disksPart({ disks, hosted, engine, instances, api, log }: Parts): HostPart {
  let seen: ObservedDisk[] = []
  let lookedAt = 0
  /** The run of its instance in which each disk was last seen mounted. */
  const mountedIn = new Map<string, string>()
  const busy = new Set<string>()
  /** Disks repaired before a report showed them as broken. The next report must still say so, for their owners. */
  const untold = new Set<string>()
  /** Disks whose writes failed, until a report has said so and a repair has succeeded. */
  const failing = new Set<string>()

  async function stateOf(id: string): Promise<ObservedDisk['state']> {
    // An entry with an invalid name is a leftover.
    const found = await disks.find(id).catch(() => null)
    return found?.state ?? 'leftover'
  }

  /** `run`: the run of the instance in which the disk is mounted afterwards. */
  async function putRight(id: string, why: string, run?: string): Promise<void> {
    if (busy.has(id)) return // a repair is running or waiting for its turn
    busy.add(id)
    try {
      const now = await hosted.putRight(id, () => untold.add(id))
      failing.delete(id)
      log.info({ disk_id: id, now }, why)
      lookedAt = 0
      if (now === 'attached' && run !== undefined) mountedIn.set(id, run)
    } catch (error) {
      log.warn({ err: error, disk_id: id }, `${why} failed; trying again`)
    } finally {
      busy.delete(id)
    }
  }

  async function look(): Promise<void> {
    lookedAt = Date.now()
    const traces = await disks.list()
    seen = await Promise.all(
      traces.map(async ({ id }): Promise<ObservedDisk> => {
        const state = await stateOf(id)
        if (state === 'failing') failing.add(id)
        const told = failing.has(id) ? 'failing' : untold.has(id) ? 'broken' : state
        return { kind: 'disk', id, state: state === 'attached' ? told : state }
      }),
    )
  }

  function see({ id, instance_id, state: wanted }: WantedDisk, here: Map<string, FoundInstance>): void {
    const state = seen.find((one) => one.id === id)?.state
    // Its mounts are gone, or will be: a repair may end half-way.
    if (state === 'broken' || state === 'failing') mountedIn.delete(id)
    if (wanted === 'detached' && ['attached', 'broken', 'failing'].includes(state ?? ''))
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

    /** The result may be some seconds old. */
    async observe() {
      if (Date.now() - lookedAt >= lookEveryMs) await look()
      // Of a machine's disk, the machine tells that writes fail. It goes on by itself: there is nothing to repair.
      const full = new Set(instances().flatMap((one) => (isMachine(one) ? one.full_disks : [])))
      return seen.map((one) =>
        one.state === 'attached' && full.has(one.id) ? { ...one, state: 'failing' } : one,
      )
    },

    remove(ids) {
      for (const id of ids) void putRight(id, 'removing a disk that is not this host’s any more')
    },

    /** The next report retries failures. */
    bringAbout(things) {
      for (const { id, state } of seen) {
        if (state === 'broken' && untold.delete(id)) lookedAt = 0 // the next report shows that it works again
      }
      const here = new Map(instances().map((instance) => [instance.id, instance]))
      for (const thing of things) see(WantedDisk.parse(thing), here)
    },
  }
}

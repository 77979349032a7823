import { cancellationSignal } from '@temporalio/activity'
import type { Disks, DiskSpec, DiskTransfers } from '../../drivers/disks.ts'
import { DiskAttached } from '../../drivers/disk-errors.ts'
import type { InstanceEngine } from '../../drivers/instances.ts'
import type { DiskTransfer, WantedDisk } from '../../lib/host-protocol.ts'
import type { HostedDisks } from './disk-mounts.ts'

/** API calls of a host about its disks. */
export interface DiskApi {
  wantedDisk: (diskId: string) => Promise<WantedDisk | null>
  /** A migration's key goes from host to API to host, so it is in no workflow history. */
  offer: (diskId: string, transfer: DiskTransfer) => Promise<void>
  transferOf: (diskId: string) => Promise<DiskTransfer>
  progress: (diskId: string, percent: number) => Promise<void>
}

interface Parts {
  disks: Disks & DiskTransfers
  engine: Pick<InstanceEngine, 'find'>
  hosted: HostedDisks
  api: DiskApi
}

const mebibyte = 1024 ** 2
const progressEveryMs = 1_000

/**
 * Disk activities of a host. This worker or the next may repeat each step; the driver checks the present state before
 * it acts.
 */
export function makeDisksOnHost({ disks, engine, hosted, api }: Parts) {
  return {
    createDiskOnHost: (spec: DiskSpec): Promise<void> =>
      hosted.inTurn(spec.id, async () => {
        await disks.create(spec, { signal: cancellationSignal() })
      }),

    async resizeDiskOnHost(id: string, sizeGib: number): Promise<void> {
      await disks.resize(id, sizeGib)
      await hosted.showGrown(id)
    },

    /** Removes the disk, its snapshots and its leftovers on this host. Succeeds if there is nothing. */
    removeDiskOnHost: (id: string): Promise<void> => hosted.remove(id),

    async takeSnapshotOnHost(id: string, name: string): Promise<{ used_bytes: number; taken_at: string }> {
      const { allocated_bytes, taken_at } = await disks.snapshot(id, name)
      return { used_bytes: allocated_bytes, taken_at }
    },

    removeSnapshotOnHost: (id: string, name: string): Promise<void> => disks.removeSnapshot(id, name),

    attachDiskOnHost: (id: string, instanceId: string): Promise<void> => hosted.mountLive(id, instanceId),

    detachDiskOnHost: (id: string, instanceId?: string): Promise<void> => hosted.detach(id, instanceId),

    /** Detaches a disk that nothing uses, for example of an instance that ended by itself. Throws DiskAttached. */
    releaseDiskOnHost: (id: string): Promise<void> =>
      hosted.inTurn(id, async () => {
        const wanted = await api.wantedDisk(id)
        const instance = wanted?.instance_id ? await engine.find(wanted.instance_id) : null
        if (instance?.state === 'running') throw new DiskAttached(id)
        await disks.detach(id)
      }),

    /** Lets another host read the disk for `seconds`, and sends the API the source. */
    async serveDiskOnHost(id: string, seconds: number): Promise<void> {
      await api.offer(id, await disks.serve(id, seconds))
    },

    stopServingDiskOnHost: (id: string): Promise<void> => disks.stopServing(id),

    /** Copies the disk from the host that serves it. A cancelled call leaves nothing behind. */
    pullDiskOnHost: (id: string, { bandwidth_mib_per_sec: limit }: Limits): Promise<void> =>
      hosted.inTurn(id, async () => {
        const source = await api.transferOf(id)
        let toldAt = 0
        await disks.pull(id, source, {
          signal: cancellationSignal(),
          ...(limit ? { bytesPerSec: limit * mebibyte } : {}),
          onProgress(percent) {
            if (Date.now() - toldAt < progressEveryMs) return
            toldAt = Date.now()
            // Progress is only displayed; a lost update does no harm.
            api.progress(id, percent).catch(() => {})
          },
        })
      }),
  }
}

interface Limits {
  bandwidth_mib_per_sec: number | null
}

import type { BindMount } from '../../drivers/containers.ts'
import type { Disks, DiskTransfers } from '../../drivers/disks.ts'
import { EngineUnavailable, InstanceNotRunning } from '../../drivers/errors.ts'
import { DiskInUse, DiskMigrating, DiskNotFound, DiskNotMountable } from '../../drivers/disk-errors.ts'
import { type InstanceEngine, isMachine } from '../../drivers/instances.ts'
import type { MachineAttachments, MachineDisk, MachineLifecycle } from '../../drivers/machines.ts'
import type { WantedDisk } from '../../lib/host-protocol.ts'
import { makeNamedQueues } from '../../lib/queue.ts'

// Mounts and unmounts disks, for activities and for the host's own repairs. The record decides what is right, so each
// call reads it when the disk's turn comes, and holds the disk until it is done.

interface Parts {
  disks: Disks & DiskTransfers
  engine: Pick<InstanceEngine, 'find'>
  /** Null on a host without machines. */
  machines: (MachineAttachments & Pick<MachineLifecycle, 'find'>) | null
  /** The record's wanted state of a disk on this host; null if the disk is not this host's. */
  wantedDisk: (diskId: string) => Promise<WantedDisk | null>
}

interface Mount {
  disk_id: string
  mount_path: string
  read_only: boolean
}

export type HostedDisks = ReturnType<typeof makeHostedDisks>

export function makeHostedDisks({ disks, engine, machines, wantedDisk }: Parts) {
  const inTurn = makeNamedQueues()

  async function needs(diskId: string, instanceId: string, operationId?: string): Promise<WantedDisk> {
    const wanted = await wantedDisk(diskId)
    if (wanted?.instance_id !== instanceId) throw new DiskNotFound(diskId)
    if (wanted.moved_by !== null && wanted.moved_by !== operationId) throw new DiskMigrating(diskId)
    return wanted
  }

  async function mountIn(wanted: WantedDisk): Promise<void> {
    const { id: disk_id, instance_id, mount_path, read_only } = wanted
    const found = instance_id === null ? null : await engine.find(instance_id)
    if (!found?.pid || mount_path === null) throw new InstanceNotRunning(instance_id ?? '')
    if (!isMachine(found)) {
      if (wanted.written_by_machine) throw new DiskNotMountable(disk_id)
      await disks.attach(disk_id, { pid: found.pid, mount_path, read_only })
    } else
      await machines?.attachDisk(found.id, { mount_path, read_only, ...(await plugged(disk_id, found.id)) })
  }

  const plugged = async (
    disk_id: string,
    machineId: string,
  ): Promise<Pick<MachineDisk, 'disk_id' | 'socket'>> => ({
    disk_id,
    ...(await disks.plug(disk_id, machineId)),
  })

  /** Detaches the disk from the machine that uses it, if any, and from the host. */
  async function detach(diskId: string, instanceId?: string): Promise<void> {
    if (machines && instanceId !== undefined && (await machines.find(instanceId)))
      await machines.detachDisk(instanceId, diskId)
    await disks.detach(diskId)
  }

  /** Detaches a disk that no instance has any more: what still has files open there is a process that is ending. */
  const letGo = (diskId: string): Promise<void> =>
    disks.detach(diskId).catch((error: unknown) => {
      throw error instanceof DiskInUse
        ? new EngineUnavailable('A process that is ending still has files open', error)
        : error
    })

  async function clear(id: string): Promise<void> {
    await disks.stopServing(id)
    await letGo(id)
    await disks.remove(id)
  }

  return {
    inTurn,

    /**
     * Attaches a container's disks and returns the bind mounts to create it with. Throws DiskNotFound, DiskMigrating, DiskNotMountable.
     */
    mountsFor: (instanceId: string, mounts: Mount[], operationId: string): Promise<BindMount[]> =>
      Promise.all(
        mounts.map(({ disk_id, mount_path, read_only }) =>
          inTurn(disk_id, async () => {
            const { written_by_machine } = await needs(disk_id, instanceId, operationId)
            if (written_by_machine) throw new DiskNotMountable(disk_id)
            const { host_path } = await disks.attach(disk_id)
            return { host_path, mount_path, read_only }
          }),
        ),
      ),

    /** Serves a machine's disks and returns their sockets. Throws DiskNotFound, DiskMigrating. */
    socketsFor: (instanceId: string, mounts: Mount[], operationId: string): Promise<MachineDisk[]> =>
      Promise.all(
        mounts.map(({ disk_id, mount_path, read_only }) =>
          inTurn(disk_id, async () => {
            await needs(disk_id, instanceId, operationId)
            return { mount_path, read_only, ...(await plugged(disk_id, instanceId)) }
          }),
        ),
      ),

    /** Mounts a disk in a running instance. Throws InstanceNotRunning too. */
    mountLive: (diskId: string, instanceId: string): Promise<void> =>
      inTurn(diskId, async () => mountIn(await needs(diskId, instanceId))),

    /** With `instanceId`, also detaches it from that machine while it runs. */
    detach: (diskId: string, instanceId?: string): Promise<void> =>
      inTurn(diskId, () => detach(diskId, instanceId)),

    /** Shows a running machine the present size of its disk. */
    async showGrown(diskId: string): Promise<void> {
      const instanceId = machines && (await wantedDisk(diskId))?.instance_id
      if (!instanceId) return
      const machine = await machines.find(instanceId)
      if (machine?.state === 'running') await machines.growDisk(instanceId, diskId)
    },

    /** Detaches the disks of an instance that has ended. */
    async detachAll(diskIds: string[]): Promise<void> {
      await Promise.all(diskIds.map((id) => inTurn(id, () => letGo(id))))
    },

    remove: (diskId: string): Promise<void> => inTurn(diskId, () => clear(diskId)),

    /** Reconciles a disk with its record. Calls `onBroken` if it repairs the disk. */
    putRight: (diskId: string, onBroken: () => void): Promise<'removed' | WantedDisk['state']> =>
      inTurn(diskId, async () => {
        const wanted = await wantedDisk(diskId)
        if (!wanted) {
          await clear(diskId)
          return 'removed'
        }
        // Looked at just before the repair: it may have broken while this waited for its turn and for the record.
        if ((await disks.find(diskId))?.state === 'broken') onBroken()
        if (wanted.state === 'attached') await mountIn(wanted)
        if (wanted.state === 'detached') await letGo(diskId)
        return wanted.state
      }),
  }
}

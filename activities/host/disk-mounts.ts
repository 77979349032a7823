import type { BindMount } from '../../drivers/containers.ts'
import type { Disks, DiskTransfers } from '../../drivers/disks.ts'
import { DiskMigrating, DiskNotFound, InstanceNotRunning } from '../../drivers/errors.ts'
import { type InstanceEngine, isMachine } from '../../drivers/instances.ts'
import type { MachineAttachments, MachineDisk, MachineLifecycle } from '../../drivers/machines.ts'
import type { WantedDisk } from '../../lib/host-protocol.ts'
import { makeNamedQueues } from '../../lib/queue.ts'

// Who mounts and unmounts on a host: activities, and the host itself when it puts something right. What each does is right
// only for as long as the record says the same, so the record is asked once a disk's turn has come, and the disk is the
// asker's until it is done.

interface Parts {
  disks: Disks & DiskTransfers
  engine: Pick<InstanceEngine, 'find'>
  /** Null: this host has none. */
  machines: (MachineAttachments & Pick<MachineLifecycle, 'find'>) | null
  /** What the record says of a disk on this host; null: it is none of this host's. */
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
    if (!isMachine(found)) await disks.attach(disk_id, { pid: found.pid, mount_path, read_only })
    else await machines?.attachDisk(found.id, { mount_path, read_only, ...(await plugged(disk_id)) })
  }

  const plugged = async (disk_id: string): Promise<Pick<MachineDisk, 'disk_id' | 'socket'>> => ({
    disk_id,
    ...(await disks.plug(disk_id)),
  })

  /** Takes it out of the machine that runs with it, if any does, and off the host. */
  async function detach(diskId: string, instanceId?: string): Promise<void> {
    if (machines && instanceId !== undefined && (await machines.find(instanceId)))
      await machines.detachDisk(instanceId, diskId)
    await disks.detach(diskId)
  }

  async function clear(id: string): Promise<void> {
    await disks.stopServing(id)
    await disks.detach(id)
    await disks.remove(id)
  }

  return {
    inTurn,

    /** Serves a container's disks, and says which folders it is to be made with. Throws DiskNotFound, DiskMigrating. */
    mountsFor: (instanceId: string, mounts: Mount[], operationId: string): Promise<BindMount[]> =>
      Promise.all(
        mounts.map(({ disk_id, mount_path, read_only }) =>
          inTurn(disk_id, async () => {
            await needs(disk_id, instanceId, operationId)
            const { host_path } = await disks.attach(disk_id)
            return { host_path, mount_path, read_only }
          }),
        ),
      ),

    /** The same for a machine: where it finds each. */
    socketsFor: (instanceId: string, mounts: Mount[], operationId: string): Promise<MachineDisk[]> =>
      Promise.all(
        mounts.map(({ disk_id, mount_path, read_only }) =>
          inTurn(disk_id, async () => {
            await needs(disk_id, instanceId, operationId)
            return { mount_path, read_only, ...(await plugged(disk_id)) }
          }),
        ),
      ),

    /** Mounts a disk in an instance that runs. Throws InstanceNotRunning too. */
    mountLive: (diskId: string, instanceId: string): Promise<void> =>
      inTurn(diskId, async () => mountIn(await needs(diskId, instanceId))),

    /** Also out of a machine that runs with it, where it is said which. */
    detach: (diskId: string, instanceId?: string): Promise<void> =>
      inTurn(diskId, () => detach(diskId, instanceId)),

    /** Lets the machine that runs with it, if any does, see its present size. */
    async showGrown(diskId: string): Promise<void> {
      const instanceId = machines && (await wantedDisk(diskId))?.instance_id
      if (!instanceId) return
      const machine = await machines.find(instanceId)
      if (machine?.state === 'running') await machines.growDisk(instanceId, diskId)
    },

    async detachAll(diskIds: string[]): Promise<void> {
      await Promise.all(diskIds.map((id) => inTurn(id, () => disks.detach(id))))
    },

    remove: (diskId: string): Promise<void> => inTurn(diskId, () => clear(diskId)),

    /** Brings a disk to what the record says of it now. */
    putRight: (diskId: string): Promise<'removed' | WantedDisk['state']> =>
      inTurn(diskId, async () => {
        const wanted = await wantedDisk(diskId)
        if (!wanted) {
          await clear(diskId)
          return 'removed'
        }
        if (wanted.state === 'attached') await mountIn(wanted)
        if (wanted.state === 'detached') await disks.detach(diskId)
        return wanted.state
      }),
  }
}

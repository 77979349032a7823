import { proxyLocalActivities } from '@temporalio/workflow'
import type { InstanceDiskActivities } from '../../activities/compute/instance-disks.ts'
import type { DiskActivities } from '../../activities/storage/disks.ts'
import type { InstanceKindName } from '../../lib/host-protocol.ts'
import { durable } from '../durable.ts'
import { on } from '../hosts.ts'

const platform = proxyLocalActivities<InstanceDiskActivities & DiskActivities>({
  startToCloseTimeout: '10 s', // one or two queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

export const diskWorkflows = (kind: InstanceKindName) => ({
  /** The API claimed the disk on acceptance. A stopped instance mounts it at its next start. */
  attachDisk: durable<{ disk_id: string }>(async (work) => {
    const { id, operation_id, input, before, undo, progress } = work
    const { disk_id } = input
    undo(() => platform.giveDiskBack(kind, id, disk_id, operation_id))
    if (before === 'running') {
      progress('mounting the disk')
      const { host_id } = await platform.diskPlace(disk_id)
      undo(() => on(host_id).detachDiskOnHost(disk_id, id))
      await on(host_id).attachDiskOnHost(disk_id, id)
    }
    return { status: before }
  }),

  /** Skips a host that does not answer: it unmounts the disk when it is back. */
  detachDisk: durable<{ disk_id: string }>(async ({ id, input: { disk_id }, before, progress, settle }) => {
    progress('unmounting the disk')
    const { host_ids } = await platform.hostsOfDisk(disk_id)
    for (const host_id of host_ids) await on(host_id).detachDiskOnHost(disk_id, id)
    await settle(() => platform.diskDetached(kind, id, disk_id))
    return { status: before }
  }),
})

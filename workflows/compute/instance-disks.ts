import { proxyLocalActivities } from '@temporalio/workflow'
import type { InstanceDiskActivities } from '../../activities/compute/instance-disks.ts'
import type { DiskActivities } from '../../activities/storage/disks.ts'
import { durable } from '../durable.ts'
import { on } from '../hosts.ts'

const platform = proxyLocalActivities<InstanceDiskActivities & DiskActivities>({
  startToCloseTimeout: '10 s', // one or two queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** The disk was taken when this was accepted. One that does not run has it mounted when it starts. */
export const attachDisk = durable<{ disk_id: string }>(
  async ({ id, operation_id, input: { disk_id }, before, undo, progress }) => {
    undo(() => platform.giveDiskBack(id, disk_id, operation_id))
    if (before === 'running') {
      progress('mounting the disk')
      const { host_id } = await platform.diskPlace(disk_id)
      undo(() => on(host_id).detachDiskOnHost(disk_id, id))
      await on(host_id).attachDiskOnHost(disk_id, id)
    }
    return { status: before }
  },
)

/** Of one that does not run, its host may be away: it takes what is left there away when it is back. */
export const detachDisk = durable<{ disk_id: string }>(
  async ({ id, input: { disk_id }, before, progress, settle }) => {
    progress('unmounting the disk')
    const { host_ids } = await platform.hostsOfDisk(disk_id)
    for (const host_id of host_ids) await on(host_id).detachDiskOnHost(disk_id, id)
    await settle(() => platform.diskDetached(id, disk_id))
    return { status: before }
  },
)

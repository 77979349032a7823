import type { InstanceKindName } from '../../lib/host-protocol.ts'
import { freeDisk, unclaimDisk } from '../../models/storage/attachments.ts'
import { instanceOf } from './instances.ts'

export const makeInstanceDiskActivities = () => ({
  /** Detaches the disk if this operation attached it. */
  async giveDiskBack(
    kind: InstanceKindName,
    instanceId: string,
    diskId: string,
    operationId: string,
  ): Promise<void> {
    const { instance } = await instanceOf(kind, instanceId)
    await unclaimDisk(diskId, instance.tenant_id, operationId)
  },

  /** Records that the disk is detached. */
  async diskDetached(kind: InstanceKindName, instanceId: string, diskId: string): Promise<void> {
    const { instance } = await instanceOf(kind, instanceId)
    await freeDisk(diskId, instance)
  },
})

export type InstanceDiskActivities = ReturnType<typeof makeInstanceDiskActivities>

import { findInstance } from '../../models/compute/instance-kinds.ts'
import { freeDisk, unclaimDisk } from '../../models/storage/attachments.ts'

export const makeInstanceDiskActivities = () => ({
  /** The disk is nobody's again, if it was this operation that attached it. */
  async giveDiskBack(instanceId: string, diskId: string, operationId: string): Promise<void> {
    const owner = await findInstance(instanceId)
    if (owner) await unclaimDisk(diskId, owner.instance.tenant_id, operationId)
  },

  /** The instance has it no longer. */
  async diskDetached(instanceId: string, diskId: string): Promise<void> {
    const owner = await findInstance(instanceId)
    if (owner) await freeDisk(diskId, owner.instance)
  },
})

export type InstanceDiskActivities = ReturnType<typeof makeInstanceDiskActivities>

import mongoose, { type PipelineStage, Schema } from 'mongoose'
import type { DiskSource } from '../../drivers/disks.ts'
import type { InstanceKindName } from '../../lib/host-protocol.ts'
import { defineResource, type ResourceDocument, resourceSchema, wholeFeed } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { type StateOf, states } from '../states.ts'

const changes = {
  update: 'resizing',
  snapshot: 'snapshotting',
  remove_snapshot: 'snapshotting',
  migrate: 'migrating',
} as const

export const diskStates = states(
  {
    creating: {},
    available: { ...changes, delete: 'deleting' },
    attached: changes,
    error: { update: 'resizing', migrate: 'migrating', delete: 'deleting' },
  },
  { supersede: ['delete'], final: ['delete'] },
)

/** How an instance mounts a disk. */
export interface Mount {
  mount_path: string
  read_only: boolean
}

/** The attachment in the instance's record. */
export interface DiskMount extends Mount {
  disk_id: string
}

/** The attachment in the disk's record. */
export interface AttachedTo extends Mount {
  kind: InstanceKindName
  id: string
  /** The operation that attached it. Only this operation may undo the attachment. */
  operation_id: string
}

export interface DiskDocument extends ResourceDocument<StateOf<typeof diskStates>> {
  size_gib: number
  host_id: string | null
  /** The one instance that has the disk. This field is authoritative. */
  attached_to: AttachedTo | null
  /**
   * Whether a machine ever had it writable, it or the disk of which it is a copy. A guest writes the blocks themselves, so
   * no host's kernel may mount the disk: a file system made to break a kernel would break the host's.
   */
  written_by_machine: boolean
  /** The condition that its host reports. */
  condition: 'sound' | 'broken' | 'failing' | 'missing'
  /** During a migration: where the target host fetches the disk. Sealed (`sealSource`); `-` for none. */
  transfer_sealed: string
}

const { Mixed } = Schema.Types
const schema = resourceSchema<DiskDocument>(
  {
    size_gib: { type: Number, required: true },
    host_id: { type: String, default: null },
    attached_to: { type: Mixed, default: null },
    written_by_machine: { type: Boolean, default: false },
    condition: { type: String, default: 'sound' },
    transfer_sealed: { type: String, default: '-' },
  },
  diskStates,
  'disks',
)
schema.index({ host_id: 1 })
schema.index({ tenant_id: 1, 'attached_to.id': 1 })

export const Disk = mongoose.model<DiskDocument>('Disk', schema)
export const diskResource = defineResource('disk', Disk, diskStates, {
  feed: wholeFeed,
  comesToRest: settleStatus,
})

/** Sets a disk at rest to attached or available by `attached_to`: its instance may have been deleted meanwhile. */
async function settleStatus({ _id, tenant_id }: { _id: string; tenant_id: string }): Promise<void> {
  const status = { $cond: [{ $eq: ['$attached_to', null] }, 'available', 'attached'] }
  await Disk.updateOne(
    { _id, tenant_id, operation_id: null, status: { $in: ['available', 'attached'] } },
    [{ $set: { status } }] as PipelineStage.Set[],
    { updatePipeline: true },
  )
}

/** What a mount by this kind of instance makes of a disk's record. */
export const writtenBy = (kind: InstanceKindName, { read_only }: Mount): Partial<DiskDocument> =>
  kind !== 'container' && !read_only ? { written_by_machine: true } : {}

const sourceOf = (tenantId: string): string => `disks.transfer:${tenantId}`
sealedField(Disk, 'transfer_sealed', ({ tenant_id }) => sourceOf(tenant_id))
export const sealSource = (tenantId: string, source: DiskSource): Promise<string> =>
  sealSecret(source, sourceOf(tenantId))
export const openSource = ({ tenant_id, transfer_sealed }: DiskDocument): Promise<DiskSource> =>
  unsealSecret(transfer_sealed, sourceOf(tenant_id))

import { NotFound, OperationInProgress, Problem, StateConflict } from '../../lib/problem.ts'
import type { InstanceDocument, InstanceKind } from '../compute/instances.ts'
import { Disk, type DiskDocument, type DiskMount } from './disks.ts'

// Which instance has which disk. The disk's own record is the one that counts: it is taken by a conditional write.

type Owner = Pick<InstanceDocument, '_id' | 'tenant_id' | 'host_id' | 'operation_id' | 'disks'>

/**
 * Takes a disk for an instance, in the transaction that accepts the operation which attaches it. Throws NotFound,
 * StateConflict, OperationInProgress, and 409 where the disk is on another host than the instance or its other disks.
 */
export async function claimDisk(
  { kind, title }: Pick<InstanceKind, 'kind' | 'title'>,
  instance: Owner,
  mount: DiskMount,
): Promise<void> {
  const { _id: id, tenant_id, operation_id } = instance
  const { disk_id: _id, ...at } = mount
  const host = (await hostOfDisks(instance)) ?? instance.host_id
  const disk = await Disk.findOneAndUpdate(
    { _id, tenant_id, status: 'available', operation_id: null, attached_to: null },
    { $set: { status: 'attached', attached_to: { kind, id, ...at, operation_id } } },
  ).lean()
  if (!disk) throw await whyNot(_id, tenant_id)
  if (host === null || host === disk.host_id) return
  const detail = `The disk is on another host than the ${title} or its other disks: migrate the disk or reschedule the ${title}`
  throw new Problem(409, 'disk_elsewhere', 'The disk is on another host', detail)
}

/** The same for all disks that an instance is made with. */
export async function claimDisks(kind: InstanceKind, instance: Owner, mounts: DiskMount[]): Promise<void> {
  for (const [index, mount] of mounts.entries()) {
    needsOwnPath(mounts.slice(0, index), mount)
    await claimDisk(kind, instance, mount)
  }
}

async function whyNot(id: string, tenantId: string): Promise<Problem> {
  const disk = await Disk.findOne({ _id: id, tenant_id: tenantId }).lean()
  if (!disk) return new NotFound('disk')
  if (disk.operation_id) return new OperationInProgress(disk.operation_id)
  return new StateConflict('attach the disk', disk.status)
}

/** Paths that lie in each other would hide each other, depending on which is mounted first. */
export function needsOwnPath(others: DiskMount[], { mount_path }: Pick<DiskMount, 'mount_path'>): void {
  const inEachOther = ({ mount_path: other }: DiskMount): boolean =>
    `${mount_path}/`.startsWith(`${other}/`) || `${other}/`.startsWith(`${mount_path}/`)
  if (!others.some(inEachOther)) return
  throw new Problem(
    409,
    'mount_path_taken',
    'The path is taken',
    `Another disk is mounted at, below or above ${mount_path}`,
  )
}

/** An instance's disks, in the order of their paths. */
export const disksOf = ({ _id, tenant_id }: Pick<Owner, '_id' | 'tenant_id'>): Promise<DiskDocument[]> =>
  Disk.find({ tenant_id, 'attached_to.id': _id }).sort({ 'attached_to.mount_path': 1 }).lean()

/** Where an instance's disks are, and so where alone it can run; null when it has none. Throws 409 when they are apart. */
export async function hostOfDisks(instance: Pick<Owner, '_id' | 'tenant_id'>): Promise<string | null> {
  const [first, ...others] = new Set((await disksOf(instance)).map(({ host_id }) => host_id))
  if (others.length === 0) return first ?? null
  const detail = 'The instance’s disks are on several hosts: migrate them to one host'
  throw new Problem(409, 'disks_apart', 'The disks are on several hosts', detail)
}

/** Gives a disk back that this operation attached; after it, or once the disk was attached anew, nothing changes. */
export const unclaimDisk = (diskId: string, tenantId: string, operationId: string): Promise<void> =>
  free({ _id: diskId, tenant_id: tenantId, 'attached_to.operation_id': operationId })

/** An instance has this disk no longer. */
export const freeDisk = (
  diskId: string,
  { _id, tenant_id }: Pick<Owner, '_id' | 'tenant_id'>,
): Promise<void> => free({ _id: diskId, tenant_id, 'attached_to.id': _id })

/** An instance has no disks any more; they stay. */
export const freeDisks = ({ _id, tenant_id }: Pick<Owner, '_id' | 'tenant_id'>): Promise<void> =>
  free({ tenant_id, 'attached_to.id': _id })

/** One on which an operation is under way comes to rest as available when that ends. */
async function free(these: { tenant_id: string; [field: string]: string }): Promise<void> {
  const nobodys = { attached_to: null, condition: 'sound' as const }
  await Disk.updateMany(
    { ...these, status: 'attached', operation_id: null },
    { $set: { ...nobodys, status: 'available' } },
  )
  await Disk.updateMany(these, { $set: nobodys })
}

import { NotFound, OperationInProgress, Problem, StateConflict } from '../../lib/problem.ts'
import type { InstanceDocument, InstanceKind } from '../compute/instances.ts'
import { needSameManager } from '../managed.ts'
import { Disk, type DiskDocument, type DiskMount, writtenBy } from './disks.ts'

// Attaches disks to instances. The disk's record is authoritative; a conditional write claims the disk.

type Owner = Pick<InstanceDocument, '_id' | 'tenant_id' | 'host_id' | 'operation_id' | 'managed_by' | 'disks'>

/**
 * Claims a disk for an instance, in the transaction that accepts the operation. Throws NotFound, StateConflict,
 * OperationInProgress, ManagedResource, and 409 if the disk is on another host than the instance or its other disks, or
 * if a machine wrote it and the instance is a container.
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
    { $set: { status: 'attached', attached_to: { kind, id, ...at, operation_id }, ...writtenBy(kind, at) } },
  ).lean()
  if (!disk) throw await whyNot(_id, tenant_id)
  if (kind === 'container' && disk.written_by_machine)
    throw new Problem(409, 'disk_written_by_machine', why, cure)
  needSameManager('disk', disk, instance)
  if (host === null || host === disk.host_id) return
  const detail = `The disk is on another host than the ${title} or its other disks: migrate the disk or reschedule the ${title}`
  throw new Problem(409, 'disk_elsewhere', 'The disk is on another host', detail)
}

const why = 'A machine may have written to the disk'
const cure =
  'A microVM or VM could write to this disk, or to the disk that it is a copy of. The host’s kernel does not mount such disks: attach it to a microVM or VM, and copy the files from there'

/** Claims all disks of a new instance. Throws as `claimDisk` and `needsOwnPath`. */
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

/** Throws 409 for nested mount paths: one mount would hide the other, depending on their order. */
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

/**
 * The host of an instance's disks, the only one where it can run; null without disks. Throws 409 if the disks are on
 * several hosts.
 */
export async function hostOfDisks(instance: Pick<Owner, '_id' | 'tenant_id'>): Promise<string | null> {
  const [first, ...others] = new Set((await disksOf(instance)).map(({ host_id }) => host_id))
  if (others.length === 0) return first ?? null
  const detail = 'The instance’s disks are on several hosts: migrate them to one host'
  throw new Problem(409, 'disks_apart', 'The disks are on several hosts', detail)
}

/**
 * Releases a disk that this operation claimed. Does nothing if the disk is free or another operation has claimed it.
 */
export const unclaimDisk = (diskId: string, tenantId: string, operationId: string): Promise<void> =>
  free({ _id: diskId, tenant_id: tenantId, 'attached_to.operation_id': operationId })

/** Detaches a disk in the records, if this instance has it. */
export const freeDisk = (
  diskId: string,
  { _id, tenant_id }: Pick<Owner, '_id' | 'tenant_id'>,
): Promise<void> => free({ _id: diskId, tenant_id, 'attached_to.id': _id })

/** Detaches all disks of an instance in the records. The disks stay. */
export const freeDisks = ({ _id, tenant_id }: Pick<Owner, '_id' | 'tenant_id'>): Promise<void> =>
  free({ tenant_id, 'attached_to.id': _id })

/** A disk with an open operation becomes available when that operation ends (`settleStatus`). */
async function free(these: { tenant_id: string; [field: string]: string }): Promise<void> {
  const nobodys = { attached_to: null, condition: 'sound' as const }
  await Disk.updateMany(
    { ...these, status: 'attached', operation_id: null },
    { $set: { ...nobodys, status: 'available' } },
  )
  await Disk.updateMany(these, { $set: nobodys })
}

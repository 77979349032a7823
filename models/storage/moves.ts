import type { DiskSource } from '../../drivers/disks.ts'
import { NotFound, OperationInProgress, Problem, StateConflict } from '../../lib/problem.ts'
import { begin, type By } from '../acceptance.ts'
import { Host } from '../compute/hosts.ts'
import { findInstance } from '../compute/instance-kinds.ts'
import { placeElsewhere } from '../compute/placement.ts'
import { arrive, heldBy, placementTurn, Reservation, stay } from '../compute/reservations.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { everyTenant } from '../tenant-scope.ts'
import { disksOf } from './attachments.ts'
import { Disk, type DiskDocument, diskResource, sealSource } from './disks.ts'

// Moves a disk from one host to another. The source's copy is the disk until the record names the target as its host;
// then the source removes its copy. At every moment one copy is complete.

/**
 * `bandwidth_mib_per_sec`: the limit for the target's reads; null for no limit. `target_host_id`: null for the best
 * host.
 */
export interface MigrationInput {
  target_host_id: string | null
  bandwidth_mib_per_sec: number | null
}

/**
 * Accepts a migration, and reserves room on the target host. Throws as `begin`, NotFound, `already_there`, NoCapacity,
 * StateConflict while the disk's instance runs or is suspended, and OperationInProgress for an operation on the
 * instance.
 */
export const acceptMigration = (by: By, id: string, input: MigrationInput): Promise<Accepted<DiskDocument>> =>
  begin(by, diskResource, id, 'migrate', {
    input,
    reserve: async (disk) => {
      // A disk whose creation failed has no reservation.
      const made = await Reservation.exists({ _id: id, tenant_id: disk.tenant_id })
      if (!made) throw new StateConflict('migrate', 'error')
      await needsRest(disk)
      const { target_host_id: target } = input
      if (target !== null) {
        if (target === disk.host_id)
          throw new Problem(409, 'already_there', 'The disk is already on that host')
        if (!(await Host.exists({ _id: target }))) throw new NotFound('host')
      }
      await placeElsewhere([id], { hostId: target })
    },
  })

async function needsRest({ attached_to }: DiskDocument): Promise<void> {
  const owner = attached_to && (await findInstance(attached_to.id))
  if (!owner) return
  const { status, operation_id } = owner.instance
  if (operation_id) throw new OperationInProgress(operation_id)
  // A suspended machine resumes with its open files.
  if (['running', 'unreachable', 'suspended'].includes(status))
    throw new StateConflict('migrate the disk', `its ${owner.kind.title} is ${status}: stop it first`)
}

/** A migrating disk, for its source (`host_id`) or target host. Throws NotFound. */
export async function migratingOn(
  hostId: string,
  diskId: string,
  end: 'host_id' | 'target_host_id',
): Promise<DiskDocument> {
  const held = await Reservation.findOne({ _id: diskId, [end]: hostId })
    .setOptions(everyTenant)
    .lean()
  const disk =
    held?.target_host_id &&
    (await Disk.findOne({ _id: diskId, tenant_id: held.tenant_id, status: 'migrating' }).lean())
  if (!disk) throw new NotFound('migration')
  return disk
}

/** Records where the target host fetches the disk. Fenced by the operation that moves it. */
export async function noteSource(
  { _id, tenant_id, operation_id }: DiskDocument,
  source: DiskSource,
): Promise<void> {
  const transfer_sealed = await sealSource(tenant_id, source)
  await Disk.updateOne({ _id, tenant_id, operation_id }, { $set: { transfer_sealed } })
}

/** Locks all disks of an instance for the operation that moves the instance. Throws a 409 if one of them is busy. */
export async function takeDisks(
  instance: Parameters<typeof disksOf>[0],
  operationId: string,
): Promise<DiskDocument[]> {
  const { tenant_id } = instance
  return transaction(async () => {
    const disks = await disksOf(instance)
    for (const { _id } of disks) {
      const taken = await Disk.updateOne(
        { _id, tenant_id, $or: [{ operation_id: null, status: 'attached' }, { operation_id: operationId }] },
        { $set: { status: 'migrating', operation_id: operationId } },
      )
      if (taken.matchedCount === 0)
        throw new Problem(
          409,
          'disk_busy',
          'A disk is busy',
          'Another operation is in progress on a disk of the instance',
        )
    }
    return disks
  }, tenant_id)
}

/**
 * Records that the disks of this operation, and the instance if given, are on the target host. Changes no disk that the
 * operation no longer holds.
 */
export const arriveTogether = (operationId: string, instanceId?: string): Promise<void> =>
  letGo(operationId, instanceId, arrive)

/** Records that they stay on the source host. Fenced in the same way. */
export const stayTogether = (operationId: string, instanceId?: string): Promise<void> =>
  letGo(operationId, instanceId, stay)

async function letGo(
  operationId: string,
  instanceId: string | undefined,
  end: typeof arrive | typeof stay,
): Promise<void> {
  await transaction(async () => {
    const disks = await Disk.find({ operation_id: operationId }).setOptions(everyTenant).lean()
    const ids = disks.map(({ _id }) => _id)
    await end(...ids, ...(instanceId === undefined ? [] : [instanceId]))
    // The instance's operation releases the disks that it locked. `endOperation` settles a disk's own operation.
    const free = instanceId === undefined ? {} : { status: 'attached', operation_id: null }
    for (const { _id, tenant_id } of disks) {
      const { host_id } = await heldBy(_id)
      await Disk.updateOne({ _id, tenant_id }, { $set: { ...free, host_id, transfer_sealed: '-' } })
    }
  }, placementTurn)
}

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

// A disk goes from one host to another. Until the record says that it is there, the source's copy is the disk; from then
// on the target's is, and the source removes its own. There is never a moment with none.

/** Of MiB per second, what the target may read; without it, as fast as it goes. */
export interface MigrationInput {
  target_host_id: string | null
  bandwidth_mib_per_sec: number | null
}

/**
 * Accepts a migration, and takes room on the host where the disk goes: this one, or the best. Throws as `begin`, NotFound,
 * NoCapacity, and StateConflict while it is attached to an instance that does not rest.
 */
export const acceptMigration = (by: By, id: string, input: MigrationInput): Promise<Accepted<DiskDocument>> =>
  begin(by, diskResource, id, 'migrate', {
    input,
    reserve: async (disk) => {
      // One that was never made is nowhere.
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
  // What is suspended goes on with the files that it has open.
  if (['running', 'unreachable', 'suspended'].includes(status))
    throw new StateConflict('migrate the disk', `its ${owner.kind.title} is ${status}: stop it first`)
}

/** A disk in migration, for the host at this end of it. Throws NotFound. */
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

/** Keeps where the target finds the disk. Fenced by the operation that moves it. */
export async function noteSource(
  { _id, tenant_id, operation_id }: DiskDocument,
  source: DiskSource,
): Promise<void> {
  const transfer_sealed = await sealSource(tenant_id, source)
  await Disk.updateOne({ _id, tenant_id, operation_id }, { $set: { transfer_sealed } })
}

/** Takes all disks of an instance along in its operation. Throws a 409 when one of them is busy. */
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
 * The disks that this operation moves, and the instance that goes with them, are where they were to go. Fenced by the
 * operation: once it has let the disks go, nothing changes.
 */
export const arriveTogether = (operationId: string, instanceId?: string): Promise<void> =>
  letGo(operationId, instanceId, arrive)

/** They stay where they are. Fenced in the same way. */
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
    // Those that an instance took along are free of its operation; a disk's own operation ends by itself.
    const free = instanceId === undefined ? {} : { status: 'attached', operation_id: null }
    for (const { _id, tenant_id } of disks) {
      const { host_id } = await heldBy(_id)
      await Disk.updateOne({ _id, tenant_id }, { $set: { ...free, host_id, transfer_sealed: '-' } })
    }
  }, placementTurn)
}

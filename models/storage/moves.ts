import { NotFound, OperationInProgress, Problem, StateConflict } from '../../lib/problem.ts'
import { Host } from '../compute/hosts.ts'
import { findInstance } from '../compute/instance-kinds.ts'
import { placeElsewhere } from '../compute/placement.ts'
import { arrive, heldBy, placementTurn, Reservation, stay } from '../compute/reservations.ts'
import { transaction } from '../database.ts'
import { type Accepted, acceptVerb } from '../operations.ts'
import { everyTenant } from '../tenant-scope.ts'
import { disksOf } from './attachments.ts'
import { Disk, type DiskDocument, diskResource } from './disks.ts'

// A disk goes from one host to another. Until the record says that it is there, the source's copy is the disk; from then
// on the target's is, and the source removes its own. There is never a moment with none.

/** Of MiB per second, what the target may read; without it, as fast as it goes. */
export interface MigrationInput {
  target_host_id: string | null
  bandwidth_mib_per_sec: number | null
}

/**
 * Accepts a migration, and takes room on the host where the disk goes: this one, or the best. Throws as `acceptVerb`,
 * NotFound, NoCapacity, and StateConflict while it is attached to an instance that does not rest.
 */
export function acceptMigration(of: {
  tenantId: string
  id: string
  requestedBy: string | null
  input: MigrationInput
}): Promise<Accepted<DiskDocument>> {
  const { tenantId, id, input } = of
  return transaction(async () => {
    const request = { ...of, input: { ...input }, resource: diskResource }
    const accepted = await acceptVerb({ ...request, verb: 'migrate' })
    const disk = accepted.document
    // One that was never made is nowhere.
    if (!(await Reservation.exists({ _id: id, tenant_id: tenantId })))
      throw new StateConflict('migrate', accepted.operation.before.status ?? 'error')
    await needsRest(disk)
    const { target_host_id: target } = input
    if (target !== null) {
      if (target === disk.host_id) throw new Problem(409, 'already_there', 'The disk is on that host')
      if (!(await Host.exists({ _id: target }))) throw new NotFound('host')
    }
    await placeElsewhere([id], { hostId: target })
    return accepted
  }, tenantId)
}

async function needsRest({ attached_to }: DiskDocument): Promise<void> {
  const owner = attached_to && (await findInstance(attached_to.id))
  if (!owner) return
  const { status, operation_id } = owner.instance
  if (operation_id) throw new OperationInProgress(operation_id)
  // What is suspended goes on with the files that it has open.
  if (['running', 'unreachable', 'suspended'].includes(status))
    throw new StateConflict('migrate the disk', `its ${owner.kind.title} is ${status}: stop it first`)
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
          'Another operation on a disk of the instance is in progress',
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

import { ApplicationFailure, Context } from '@temporalio/activity'
import { Problem } from '../../lib/problem.ts'
import { findInstances } from '../../models/compute/instance-kinds.ts'
import { NoCapacity, Reservation } from '../../models/compute/reservations.ts'
import { type Accepted, acceptVerb, findOperation } from '../../models/operations.ts'
import { Disk } from '../../models/storage/disks.ts'
import { acceptMigration } from '../../models/storage/moves.ts'
import { everyTenant } from '../../models/tenant-scope.ts'

const lookEveryMs = 500
// Each pulls an image and starts an instance; more at once would only slow each other down.
const movesAtOnce = 8
/** An instance that is being evacuated has as long to end as one that is stopped. */
const graceSec = 10

export const makePlatformHostActivities = () => ({
  /**
   * Moves every instance of a host, and every disk that goes with none, by an operation of its own, and returns once
   * nothing is left there. Throws `not_evacuated` when some cannot be moved; the others have been.
   */
  async evacuateInstances(hostId: string): Promise<void> {
    const moves = new Map<string, string>()
    const failed = new Map<string, string>()
    for (;;) {
      const there = await movablesOn(hostId)
      for (const [id, operationId] of moves) {
        const operation = await findOperation(operationId)
        if (operation?.open) continue
        moves.delete(id)
        if (operation?.state !== 'succeeded') failed.set(id, operation?.error?.detail ?? 'cancelled')
      }
      const left = there.filter(({ _id }) => !failed.has(_id))
      if (left.length === 0 && moves.size === 0) break
      const idle = left.filter(({ _id, operation_id }) => operation_id === null && !moves.has(_id))
      for (const { _id, begin } of idle.slice(0, movesAtOnce - moves.size)) {
        try {
          const { operation } = await begin()
          moves.set(_id, operation._id)
        } catch (error) {
          // It is gone, or busy at this moment: the next look says which.
          if (error instanceof NoCapacity) failed.set(_id, error.message)
          else if (!(error instanceof Problem)) throw error
        }
      }
      await Context.current().sleep(lookEveryMs)
    }
    if (failed.size === 0) return
    const reasons = [...new Set(failed.values())].join('; ')
    const detail = `${failed.size} of the host’s instances and disks could not be moved: ${reasons}`
    throw ApplicationFailure.nonRetryable(detail, 'not_evacuated')
  },
})

export type PlatformHostActivities = ReturnType<typeof makePlatformHostActivities>

interface Movable {
  _id: string
  operation_id: string | null
  begin: () => Promise<Accepted>
}

/** By what they hold there, since one that is still being created names no host yet. */
async function movablesOn(hostId: string): Promise<Movable[]> {
  const held = await Reservation.find({ host_id: hostId }, { _id: 1 }).setOptions(everyTenant).lean()
  const these = { _id: { $in: held.map(({ _id }) => _id) } }
  const instances = await findInstances(these)
  // Those of its instances go with them.
  const others = { 'attached_to.id': { $nin: instances.map(({ instance }) => instance._id) } }
  const disks = await Disk.find({ ...these, ...others }, { operation_id: 1, tenant_id: 1 })
    .setOptions(everyTenant)
    .lean()
  const requestedBy = null
  return [
    ...instances.map(({ kind: { resource }, instance }) => {
      const { _id, tenant_id: tenantId, operation_id } = instance
      const by = { resource, tenantId, requestedBy, id: _id, verb: 'reschedule' as const }
      const input = { host_id: null, grace_sec: graceSec }
      return { _id, operation_id, begin: () => acceptVerb({ ...by, input }) }
    }),
    ...disks.map(({ _id, tenant_id: tenantId, operation_id }) => {
      const input = { target_host_id: null, bandwidth_mib_per_sec: null }
      return {
        _id,
        operation_id,
        begin: () => acceptMigration({ tenant_id: tenantId, id: null }, _id, input),
      }
    }),
  ]
}

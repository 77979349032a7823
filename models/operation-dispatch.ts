import { Operation, type OperationDocument } from './operations.ts'
import { everyTenant } from './tenant-scope.ts'

// What the dispatcher looks for: operations of any tenant that Temporal does not have, or has longer than it should.

/**
 * Records that Temporal has these workflows. `beginOperation` records it too, so a running operation needs no write.
 */
export async function markDispatched(ids: string[]): Promise<void> {
  await Operation.updateMany(
    { _id: { $in: ids }, undispatched: true },
    { $unset: { undispatched: 1 } },
  ).setOptions(everyTenant)
}

const ago = (ms: number): Date => new Date(Date.now() - ms)

/** Counts the accepted operations that are not yet in Temporal. */
export const countWaiting = async (): Promise<number> =>
  (await count({ undispatched: true })) + (await count({ held_in: { $exists: true } }))
const count = (of: object) => Operation.countDocuments(of).setOptions(everyTenant)

/** Operations that were accepted more than `olderMs` ago and are not in Temporal, oldest first. */
export const findUndispatched = (olderMs: number, limit: number): Promise<OperationDocument[]> =>
  Operation.find({ undispatched: true, created_at: { $lt: ago(olderMs) } })
    .setOptions(everyTenant)
    .sort({ created_at: 1 })
    .limit(limit)
    .lean()

/** Open operations whose cancellation was requested more than `olderMs` ago. */
export const findCancelling = (olderMs: number): Promise<OperationDocument[]> =>
  Operation.find({ open: true, cancel_requested_at: { $lt: ago(olderMs) } })
    .setOptions(everyTenant)
    .lean()

/** Open operations that are in Temporal and were accepted more than `olderMs` ago. */
export const findOpenSince = (olderMs: number): Promise<OperationDocument[]> =>
  Operation.find({
    open: true,
    undispatched: { $exists: false },
    held_in: { $exists: false },
    created_at: { $lt: ago(olderMs) },
  })
    .setOptions(everyTenant)
    .lean()

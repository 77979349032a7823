import { Operation } from '../operations.ts'
import type { Instance } from './instance-kinds.ts'
import type { InstanceDocument } from './instances.ts'

// Repairs by the platform of an instance that ends again and again: a VM that shuts itself down, a container whose restarts
// its engine has given up. They wait longer and longer, as the restarts by the engine do.

/** Repairs of one instance in a row that do not wait. */
export const repairsAtOnce = 3
const firstPauseMs = 10_000
const lastPauseMs = 300_000
/** An instance that needs no repair for this long ends a row. Longer than the last pause. */
const rowEndsMs = 600_000
/** Of one tenant, among those that repair again and again. */
const mostRepairs = 4

/** How many repairs in a row there were, and whether the next has to wait. */
export function rowOf({ repairs }: InstanceDocument, now = Date.now()): { count: number; waits: boolean } {
  const sinceMs = repairs ? now - repairs.last_at.getTime() : Infinity
  if (!repairs || sinceMs > rowEndsMs) return { count: 0, waits: false }
  return { count: repairs.count, waits: sinceMs < pauseMs(repairs.count) }
}

/** The pause before the repair after that many. */
const pauseMs = (count: number): number =>
  count < repairsAtOnce ? 0 : Math.min(firstPauseMs * 2 ** (count - repairsAtOnce), lastPauseMs)

/** Whether as many repairs of a tenant are open as may be at once. */
export const isRepairing = async (tenant_id: string): Promise<boolean> =>
  (await Operation.countDocuments({ tenant_id, verb: 'repair', open: true })) >= mostRepairs

export async function countRepair({ kind, instance }: Instance, { count }: { count: number }): Promise<void> {
  const { _id, tenant_id } = instance
  const repairs = { count: count + 1, last_at: new Date() }
  await kind.model.updateOne({ _id, tenant_id }, { $set: { repairs } }, { timestamps: false })
}

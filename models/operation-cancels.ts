import type { PipelineStage } from 'mongoose'
import { NotFound, StateConflict } from '../lib/problem.ts'
import { Operation, type OperationDocument } from './operations.ts'
import { resourceOf } from './resources.ts'

/**
 * Records that an operation is to be cancelled. Throws NotFound, and StateConflict if it has ended or cannot be
 * cancelled.
 */
export async function requestCancel(tenantId: string, id: string): Promise<OperationDocument> {
  const operation = await Operation.findOne({ _id: id, tenant_id: tenantId }).lean()
  if (!operation) throw new NotFound('operation')
  if (!operation.open) throw new StateConflict('cancel', operation.state)
  const { states, mayCancel } = resourceOf(operation.resource_kind)
  if (!states.cancellable(operation.verb)) {
    throw new StateConflict(`cancel a ${operation.verb}`, operation.state)
  }
  await mayCancel?.({ _id: operation.resource_id, tenant_id: tenantId })
  const updated = await Operation.findOneAndUpdate(
    { _id: id, tenant_id: tenantId, open: true },
    [
      { $set: { cancel_requested_at: { $ifNull: ['$cancel_requested_at', '$$NOW'] } } },
      // One that waits for its turn is started, so that its workflow ends it.
      { $set: { undispatched: { $ifNull: ['$undispatched', { $cond: ['$held_in', true, '$$REMOVE'] }] } } },
      { $unset: 'held_in' },
    ] as PipelineStage.Set[],
    { returnDocument: 'after', updatePipeline: true },
  ).lean()
  if (!updated) throw new StateConflict('cancel', 'ended')
  return updated
}

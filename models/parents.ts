import { NotFound, StateConflict } from '../lib/problem.ts'
import type { Resource, ResourceDocument } from './resources.ts'

/** A resource that contains others: a VPC has subnets. */
export interface ParentDocument {
  /**
   * Counts the locks taken on it. Each lock writes it, so concurrent transactions conflict and run one after another.
   */
  turns: number
}

/** The schema fields of a parent. */
export const parentFields = { turns: { type: Number, default: 0 } }

/**
 * Locks a parent to add a child: until the transaction ends, no other transaction adds a child or deletes the parent.
 * Throws NotFound, and StateConflict while the parent is being deleted or after its deletion failed.
 */
export async function lockParent<D extends ResourceDocument & ParentDocument>(
  { title, model, states, of_platform }: Resource<D>,
  tenantId: string,
  id: string,
): Promise<D> {
  const its = of_platform ? { _id: id } : { _id: id, tenant_id: tenantId }
  const open = { status: { $nin: [states.during('delete'), 'error'] } }
  const parent = await model
    .findOneAndUpdate({ ...its, ...open }, { $inc: { turns: 1 } }, { timestamps: false })
    .lean<D>()
  if (parent) return parent
  const closed = await model.findOne(its).lean()
  if (!closed) throw new NotFound(title)
  throw new StateConflict(`use the ${title}`, closed.status)
}

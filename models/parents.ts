import { NotFound, StateConflict } from '../lib/problem.ts'
import type { Resource, ResourceDocument } from './resources.ts'

/** A resource in which others are made: a VPC has subnets. */
export interface ParentDocument {
  /** Counts the locks taken on it: transactions that write it meet here, and go one after another. */
  turns: number
}

/** The schema's part for these. */
export const parentFields = { turns: { type: Number, default: 0 } }

/**
 * Locks a parent for something new in it: until the transaction ends, no other one adds to it or deletes it. Throws NotFound,
 * and StateConflict while it is being deleted or its deletion has failed.
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
    .lean()
  if (parent) return parent as ResourceDocument as D
  const closed = await model.findOne(its).lean()
  if (!closed) throw new NotFound(title)
  throw new StateConflict(`use the ${title}`, closed.status)
}

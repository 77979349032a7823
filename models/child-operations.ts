import { StateConflict } from '../lib/problem.ts'
import { isDuplicateKey, transaction } from './database.ts'
import { type Accepted, Operation, type OperationDocument, type Parent } from './operations.ts'
import { resourceOf } from './resources.ts'
import { everyTenant } from './tenant-scope.ts'

// Operations that are parts of a parent operation.

/** The caller on whose behalf a child is accepted. */
export interface OnBehalf {
  tenant_id: string
  id: string | null
  parent: Parent
}

/**
 * Accepts a child of an operation, or finds the one accepted earlier under this key. `id`: the resource; null to create
 * one in the parent's tenant. Throws as `accept`, and StateConflict if the parent has ended.
 */
export async function acceptChild(
  parent: Parent,
  { kind, id }: { kind: string; id: string | null },
  accept: (by: OnBehalf) => Promise<Accepted>,
): Promise<OperationDocument> {
  const before = await childOf(parent)
  if (before) return before
  const { tenant_id, requested_by } = await openOperation(parent.id)
  const tenant = (id !== null && (await tenantOf(kind, id))) || tenant_id
  // A user id is valid only in the user's own tenant.
  const by = { tenant_id: tenant, id: tenant === tenant_id ? requested_by : null, parent }
  try {
    return await transaction(async () => (await childOf(parent)) ?? (await accept(by)).operation, tenant)
  } catch (error) {
    // A concurrent call with the same key was first.
    if (!isDuplicateKey(error) || !('parent_key' in error.keyPattern)) throw error
    const child = await childOf(parent)
    if (!child) throw error
    return child
  }
}

const childOf = ({ id, key }: Parent): Promise<OperationDocument | null> =>
  Operation.findOne({ parent_id: id, parent_key: key }).setOptions(everyTenant).lean()

/** Throws StateConflict if the operation has ended: a worker that lost its connection may call late. */
async function openOperation(id: string): Promise<OperationDocument> {
  const operation = await Operation.findById(id).setOptions(everyTenant).lean()
  if (!operation?.open) throw new StateConflict('accept a child operation', operation?.state ?? 'deleted')
  return operation
}

async function tenantOf(kind: string, id: string): Promise<string | null> {
  const found = await resourceOf(kind).model.findById(id, { tenant_id: 1 }).setOptions(everyTenant).lean()
  return found?.tenant_id ?? null
}

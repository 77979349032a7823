import mongoose, { Schema } from 'mongoose'
import { schemaOptions } from '../schemas.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'

/**
 * The size of all archived output of a tenant. It changes in the transactions that add and remove pieces, so a killed
 * process cannot make it differ from their sum.
 */
interface LogTotalDocument {
  /** The tenant's id. */
  _id: string
  tenant_id: string
  stored_bytes: number
}

const schema = new Schema<LogTotalDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    stored_bytes: { type: Number, required: true },
  },
  { ...schemaOptions, collection: 'log_totals' },
)
tenantScoped(schema)
export const LogTotal = mongoose.model<LogTotalDocument>('LogTotal', schema)

/** The turn of the transactions that change a tenant's total, so that they seldom conflict. */
export const totalTurn = (tenantId: string): string => `output of ${tenantId}`

/**
 * Changes a tenant's total, and returns it. Call in the transaction that adds or removes the pieces, after that. A tenant
 * without a total, from before there were totals, gets what `sum` returns: the sum of all pieces that are now there.
 */
export async function addToTotal(
  tenantId: string,
  bytes: number,
  sum: () => Promise<number>,
): Promise<number> {
  const changed = await LogTotal.findOneAndUpdate(
    { _id: tenantId },
    { $inc: { stored_bytes: bytes } },
    { returnDocument: 'after' },
  )
    .setOptions(everyTenant)
    .lean()
  if (changed) return changed.stored_bytes
  const stored_bytes = await sum()
  await LogTotal.create({ _id: tenantId, tenant_id: tenantId, stored_bytes })
  return stored_bytes
}

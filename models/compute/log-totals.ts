import mongoose, { Schema } from 'mongoose'
import { schemaOptions } from '../schemas.ts'
import { tenantScoped } from '../tenant-scope.ts'

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

/** Adds to a tenant's total, and returns it. Call in the transaction that adds the pieces. */
export async function addToTotal(tenant_id: string, bytes: number): Promise<number> {
  const { stored_bytes } = await LogTotal.findOneAndUpdate(
    { _id: tenant_id, tenant_id },
    { $inc: { stored_bytes: bytes } },
    { upsert: true, returnDocument: 'after' },
  ).lean()
  return stored_bytes
}

/** Call in the transaction that removes the pieces. The tenant may be gone, with its total. */
export async function takeFromTotal(tenant_id: string, bytes: number): Promise<void> {
  await LogTotal.updateOne({ _id: tenant_id, tenant_id }, { $inc: { stored_bytes: -bytes } })
}

import mongoose, { Schema } from 'mongoose'
import { GrantDenied } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { schemaOptions } from '../schemas.ts'

/**
 * The one rule against climbing: nobody gives, changes or takes away what he does not hold himself. Throws
 * GrantDenied, which names what is missing.
 */
export function mustHold(held: ReadonlySet<string>, wanted: Iterable<string>): void {
  const missing = [...new Set(wanted)].filter((permission) => !held.has(permission)).toSorted()
  if (missing.length) throw new GrantDenied(missing)
}

interface TurnDocument {
  /** The tenant. */
  _id: string
  changes: number
}
const schema = new Schema<TurnDocument>(
  { _id: { type: String, required: true }, changes: { type: Number, required: true } },
  { ...schemaOptions, collection: 'identity_turns' },
)
const Turn = mongoose.model<TurnDocument>('IdentityTurn', schema)

/**
 * A transaction that changes who may do what in a tenant. They go one after another, on all replicas, since
 * each writes the same document first: two owners who remove each other, or a role that is deleted while it is
 * given, see one another.
 */
export function changeGrants<T>(tenantId: string, work: () => Promise<T>): Promise<T> {
  return transaction(async () => {
    await Turn.updateOne({ _id: tenantId }, { $inc: { changes: 1 } }, { upsert: true })
    return work()
  }, lineOf(tenantId))
}

/**
 * A transaction that copies to a session what its user may do. It takes no turn, so that logins on several replicas do
 * not wait for each other: it writes to the records that it copies (`holdUser`, `holdOwnRoles`), where it meets a change.
 */
export const copyGrants = <T>(tenantId: string, work: () => Promise<T>): Promise<T> =>
  transaction(work, lineOf(tenantId))

const lineOf = (tenantId: string): string => `grants:${tenantId}`

/** The tenant is gone. */
export const forgetGrants = async (tenantId: string): Promise<void> => {
  await Turn.deleteOne({ _id: tenantId })
}

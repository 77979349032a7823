import mongoose, { Schema } from 'mongoose'
import { GrantDenied } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { schemaOptions } from '../schemas.ts'

/**
 * The rule against privilege escalation: callers can grant, change or revoke only permissions that they hold. Throws
 * GrantDenied, which lists the missing ones.
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
 * A transaction that changes permissions in a tenant. These transactions run one after another on all replicas, since
 * each writes the same document first. Otherwise two owners could remove each other, or a role could be deleted while
 * it is being granted.
 */
export function changeGrants<T>(tenantId: string, work: () => Promise<T>): Promise<T> {
  return transaction(async () => {
    await Turn.updateOne({ _id: tenantId }, { $inc: { changes: 1 } }, { upsert: true })
    return work()
  }, lineOf(tenantId))
}

/**
 * A transaction that copies a user's permissions to a session. Logins on several replicas do not wait for each other:
 * it writes only to the records that it copies (`holdUser`, `holdOwnRoles`), and so conflicts with a change of them.
 */
export const copyGrants = <T>(tenantId: string, work: () => Promise<T>): Promise<T> =>
  transaction(work, lineOf(tenantId))

const lineOf = (tenantId: string): string => `grants:${tenantId}`

/** Removes the record of a deleted tenant. */
export const forgetGrants = async (tenantId: string): Promise<void> => {
  await Turn.deleteOne({ _id: tenantId })
}

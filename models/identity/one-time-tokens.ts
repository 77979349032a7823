import mongoose, { Schema } from 'mongoose'
import { InvalidInput } from '../../lib/problem.ts'
import { schemaOptions } from '../schemas.ts'
import { hashToken, newToken } from '../secrets.ts'
import { tenantScoped, everyTenant } from '../tenant-scope.ts'
import type { UserDocument } from './users.ts'

type Purpose = 'invitation' | 'password_reset'

/** Lets one user set a password once. The token itself is not stored: `_id` is its keyed hash. */
interface OneTimeTokenDocument {
  _id: string
  tenant_id: string
  user_id: string
  purpose: Purpose
  expires_at: Date
}

const schema = new Schema<OneTimeTokenDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    user_id: { type: String, required: true },
    purpose: { type: String, required: true },
    expires_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'one_time_tokens' },
)
tenantScoped(schema)
schema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
schema.index({ tenant_id: 1, user_id: 1 })
export const OneTimeToken = mongoose.model<OneTimeTokenDocument>('OneTimeToken', schema)

const hourMs = 3_600_000
const livesMs: Record<Purpose, number> = { invitation: 7 * 24 * hourMs, password_reset: hourMs }
const prefixes: Record<Purpose, string> = { invitation: 'kli', password_reset: 'klp' }

type Owner = Pick<UserDocument, '_id' | 'tenant_id'>

/** Issues a token, and voids the older tokens of the user. */
export async function issueToken(user: Owner, purpose: Purpose): Promise<string> {
  await voidTokens(user)
  const token = newToken(prefixes[purpose])
  await OneTimeToken.create([
    {
      _id: hashToken(token),
      tenant_id: user.tenant_id,
      user_id: user._id,
      purpose,
      expires_at: new Date(Date.now() + livesMs[purpose]),
    },
  ])
  return token
}

/** Finds the record of a token. Throws InvalidInput if the token is unknown, used or expired. */
export async function readToken(token: string, purpose: Purpose): Promise<OneTimeTokenDocument> {
  const filter = { _id: hashToken(token), purpose, expires_at: { $gt: new Date() } }
  return known(await OneTimeToken.findOne(filter).setOptions(everyTenant).lean())
}

/** Consumes a token. Of concurrent calls one succeeds; the others throw InvalidInput. */
export async function useToken({ _id, tenant_id }: OneTimeTokenDocument): Promise<void> {
  known(await OneTimeToken.findOneAndDelete({ _id, tenant_id }).lean())
}

export async function voidTokens({ _id, tenant_id }: Owner): Promise<void> {
  await OneTimeToken.deleteMany({ tenant_id, user_id: _id })
}

function known(found: OneTimeTokenDocument | null): OneTimeTokenDocument {
  if (found) return found
  throw new InvalidInput(422, [{ pointer: '/token', message: 'is unknown, already used or expired' }])
}

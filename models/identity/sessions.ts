import mongoose, { Schema } from 'mongoose'
import { schemaOptions } from '../schemas.ts'
import { hashToken } from '../secrets.ts'
import type { Origin } from './browsers.ts'
import type { UserDocument } from './users.ts'

/** The permissions of a custom role. */
export interface RoleGrant {
  name: string
  permissions: string[]
}

/**
 * A login. The token itself is not stored: `_id` is its keyed hash. `email`, `roles` and `own_roles` are copies, so
 * that a request reads one record. Each transaction that changes a user or a role updates the copies.
 */
export interface SessionDocument extends Origin {
  _id: string
  /** The id by which the user can end the session. */
  public_id: string
  tenant_id: string
  user_id: string
  email: string
  roles: string[]
  /** The custom roles among `roles`. */
  own_roles: RoleGrant[]
  created_at: Date
  /** Extended while the session is used, up to `ends_at`. MongoDB deletes expired sessions. */
  expires_at: Date
  ends_at: Date
}

const schema = new Schema<SessionDocument>(
  {
    _id: { type: String, required: true },
    public_id: { type: String, required: true },
    address: { type: String, default: '' },
    user_agent: { type: String, default: '' },
    tenant_id: { type: String, required: true },
    user_id: { type: String, required: true },
    email: { type: String, required: true },
    roles: { type: [String], required: true },
    own_roles: { type: [{ _id: false, name: String, permissions: [String] }], required: true },
    created_at: { type: Date, required: true },
    expires_at: { type: Date, required: true },
    ends_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'sessions' },
)
schema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
schema.index({ user_id: 1 })
schema.index({ tenant_id: 1, 'own_roles.name': 1 })
export const Session = mongoose.model<SessionDocument>('Session', schema)

/** Copies a user's roles to their sessions. Call in the transaction that changes the roles. */
export async function copyRoles({ _id, roles }: UserDocument, own: RoleGrant[]): Promise<void> {
  await Session.updateMany({ user_id: _id }, { $set: { roles, own_roles: own.map(grantOf) } })
}

/** Copies a role's permissions to sessions. Call in the transaction that changes the role. */
export async function copyRole({
  tenant_id,
  ...role
}: RoleGrant & { tenant_id: string | null }): Promise<void> {
  const { name, permissions } = grantOf(role)
  await Session.updateMany(
    { tenant_id, 'own_roles.name': name },
    { $set: { 'own_roles.$.permissions': permissions } },
  )
}

export const grantOf = ({ name, permissions }: RoleGrant): RoleGrant => ({ name, permissions })

/** Ends the session at once, on all replicas. */
export async function closeSession(token: string): Promise<void> {
  await Session.deleteOne({ _id: hashToken(token) })
}

/** Ends one of a user's own sessions. Returns whether it existed. */
export async function closeSessionNamed(user_id: string, public_id: string): Promise<boolean> {
  return (await Session.deleteOne({ user_id, public_id })).deletedCount === 1
}

/** Ends all sessions of a user, except the one with this token. */
export async function closeSessions(user_id: string, exceptToken?: string): Promise<void> {
  const others = exceptToken === undefined ? {} : { _id: { $ne: hashToken(exceptToken) } }
  await Session.deleteMany({ user_id, ...others })
}

/** Ends all sessions of a tenant's users. */
export async function closeTenantSessions(tenant_id: string): Promise<void> {
  await Session.deleteMany({ tenant_id })
}

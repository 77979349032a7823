import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { readOne } from '../database.ts'
import { schemaOptions } from '../schemas.ts'
import { hashToken, newToken } from '../secrets.ts'
import type { Origin } from './browsers.ts'
import { type Permission, permissionsNow } from './roles.ts'
import { User, type UserDocument } from './users.ts'

/** A login. The token itself is not kept: `_id` is its keyed hash. */
export interface SessionDocument extends Origin {
  _id: string
  /** What its user names it by. */
  public_id: string
  tenant_id: string
  user_id: string
  created_at: Date
  /** Moves on while the session is used, up to `ends_at`. MongoDB removes what has expired. */
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
    created_at: { type: Date, required: true },
    expires_at: { type: Date, required: true },
    ends_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'sessions' },
)
schema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
schema.index({ user_id: 1 })
schema.index({ tenant_id: 1 })
export const Session = mongoose.model<SessionDocument>('Session', schema)

/**
 * How a session's token begins, which an access token never does. The id of its user follows, so that both can be
 * asked for at once, and then the secret.
 */
export const sessionPrefix = 'kls_'
const claimedUser = (token: string): string | undefined =>
  /^kls_([\da-f]{8}(?:-[\da-f]{4}){3}-[\da-f]{12})_/.exec(token)?.[1]

const hourMs = 3_600_000
const idleMs = 12 * hourMs
const longestMs = 7 * 24 * hourMs
// A session that is used is written to once an hour at most, not on every request.
const slideAfterMs = hourMs

/** Opens a session; the token is shown to nobody else, and kept nowhere. */
export async function openSession(
  user: UserDocument,
  origin: Origin = { address: '', user_agent: '' },
): Promise<{ token: string; expires_at: Date }> {
  const token = newToken(`${sessionPrefix}${user._id}`)
  const now = Date.now()
  const expires_at = new Date(now + idleMs)
  await Session.create({
    _id: hashToken(token),
    public_id: newId(),
    ...origin,
    tenant_id: user.tenant_id,
    user_id: user._id,
    created_at: new Date(now),
    expires_at,
    ends_at: new Date(now + longestMs),
  })
  return { token, expires_at }
}

export interface Identity {
  tenant_id: string
  user_id: string
  email: string
  permissions: ReadonlySet<Permission>
}

/** Who this token stands for, as things are now: a user disabled or robbed of a role is so on the next request. */
export async function identityOf(token: string): Promise<Identity | null> {
  const userId = claimedUser(token)
  if (userId === undefined) return null
  // Both at once: this runs on each request, and a round trip costs more than all the rest.
  const [session, user] = await Promise.all([
    readOne(Session, { _id: hashToken(token) }),
    readOne(User, { _id: userId }),
  ])
  const now = Date.now()
  if (!session || user?._id !== session.user_id || user.status !== 'active') return null
  if (session.expires_at.getTime() <= now) return null
  const slid = Math.min(now + idleMs, session.ends_at.getTime())
  if (slid - session.expires_at.getTime() > slideAfterMs) {
    await Session.updateOne({ _id: session._id }, { $max: { expires_at: new Date(slid) } })
  }
  return {
    tenant_id: user.tenant_id,
    user_id: user._id,
    email: user.email,
    permissions: await permissionsNow(user.tenant_id, user.roles),
  }
}

/** Ends the login at once, everywhere. */
export async function closeSession(token: string): Promise<void> {
  await Session.deleteOne({ _id: hashToken(token) })
}

/** Ends one of a user's own logins. Whether there was one. */
export async function closeSessionNamed(user_id: string, public_id: string): Promise<boolean> {
  return (await Session.deleteOne({ user_id, public_id })).deletedCount === 1
}

/** Ends all logins of a user, but that with this token. */
export async function closeSessions(user_id: string, exceptToken?: string): Promise<void> {
  const others = exceptToken === undefined ? {} : { _id: { $ne: hashToken(exceptToken) } }
  await Session.deleteMany({ user_id, ...others })
}

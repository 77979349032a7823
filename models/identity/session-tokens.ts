import { newId } from '../../lib/ids.ts'
import { Unauthenticated } from '../../lib/problem.ts'
import { readOne } from '../read-one.ts'
import { hashToken, newToken } from '../secrets.ts'
import type { Origin } from './browsers.ts'
import { copyGrants } from './grants.ts'
import { holdOwnRoles, type Permission, permissionsOf } from './roles.ts'
import { grantOf, Session } from './sessions.ts'
import { holdUser, type UserDocument } from './users.ts'

const hourMs = 3_600_000
const idleMs = 12 * hourMs
/** The prefix of the tokens of each kind of session, and how long it lasts: unused, and at all. */
const kinds = {
  api: { prefix: 'kls', idleMs, longestMs: 7 * 24 * hourMs },
  /** A cookie that opens nothing but the codec (api/codec.ts). */
  codec: { prefix: 'klc', idleMs: hourMs, longestMs: hourMs },
}
export type SessionKind = keyof typeof kinds

/** The prefix of a kind's tokens, which no other token has: it tells for what a token is good. */
export const sessionPrefix = (kind: SessionKind): string => `${kinds[kind].prefix}_`

// The expiry of a session in use is extended at most once an hour, not on every request.
const slideAfterMs = hourMs

/**
 * Opens a session. The returned token is not stored. Throws Unauthenticated if the user was disabled, removed or given
 * another password since `user` was read.
 */
export async function openSession(
  user: UserDocument,
  origin: Origin = { address: '', user_agent: '' },
  kind: SessionKind = 'api',
): Promise<{ token: string; expires_at: Date }> {
  const { tenant_id, _id: user_id } = user
  const lives = kinds[kind]
  const token = newToken(lives.prefix)
  return copyGrants(tenant_id, async () => {
    const present = await holdUser(user)
    if (!present)
      throw new Unauthenticated('The e-mail address or the password is wrong', 'invalid_credentials')
    const own = await holdOwnRoles(tenant_id, present.roles)
    const now = Date.now()
    const expires_at = new Date(now + lives.idleMs)
    const session = new Session({
      _id: hashToken(token),
      public_id: newId(),
      ...origin,
      tenant_id,
      user_id,
      email: present.email,
      roles: present.roles,
      own_roles: own.map(grantOf),
      created_at: new Date(now),
      expires_at,
      ends_at: new Date(now + lives.longestMs),
    })
    await session.save()
    return { token, expires_at }
  })
}

export interface Identity {
  tenant_id: string
  user_id: string
  email: string
  permissions: ReadonlySet<Permission>
}

/** The user of this token, with their current permissions. One query, since this runs on each request. */
export async function identityOf(token: string): Promise<Identity | null> {
  const session = await readOne(Session, '_id', hashToken(token))
  const now = Date.now()
  if (!session || session.expires_at.getTime() <= now) return null
  const slid = Math.min(now + idleMs, session.ends_at.getTime())
  if (slid - session.expires_at.getTime() > slideAfterMs) {
    await Session.updateOne({ _id: session._id }, { $max: { expires_at: new Date(slid) } })
  }
  const { tenant_id, user_id, email, roles, own_roles } = session
  return { tenant_id, user_id, email, permissions: permissionsOf(roles, own_roles) }
}

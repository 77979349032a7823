import { InvalidInput, NotFound, Problem, StateConflict } from '../../lib/problem.ts'
import { isDuplicateKey } from '../database.ts'
import { endLogins } from './accounts.ts'
import { mayInvite } from './attempts.ts'
import { removeAuthenticator } from './authenticators.ts'
import { changeGrants, mustHold } from './grants.ts'
import { waysToUse } from './links.ts'
import { queueMail } from './mails.ts'
import { issueToken } from './one-time-tokens.ts'
import { builtInRoles, customRolesNamed, operatorRole, type Permission, permissionsOf } from './roles.ts'
import { copyRoles } from './sessions.ts'
import { emailTaken, User, type UserDocument } from './users.ts'

// Management of a tenant's users. A caller cannot change a user who has more permissions than the caller.

interface Manager {
  tenant_id: string
  email?: string
  permissions: ReadonlySet<Permission>
}

/** Throws NotFound, also for another tenant's user. */
export async function findUser(tenant_id: string, _id: string): Promise<UserDocument> {
  const user = await User.findOne({ tenant_id, _id }).lean()
  if (!user) throw new NotFound('user')
  return user
}

/**
 * Invites a user by mail. Throws GrantDenied, InvalidInput for an unknown role, `email_taken` if the tenant has a user with
 * this address, and TooManyRequests. Says nothing of users of other tenants.
 */
export async function inviteUser(
  by: Manager,
  invited: { email: string; name: string; roles: string[] },
): Promise<UserDocument> {
  const mayMail = await mayInvite(by.tenant_id, invited.email)
  try {
    return await changeGrants(by.tenant_id, async () => {
      const roles = [...new Set(invited.roles)]
      mustHold(by.permissions, await permissionsOfRoles(by.tenant_id, roles))
      const email = invited.email.toLowerCase()
      const fields = { ...invited, email, roles, tenant_id: by.tenant_id, status: 'invited' as const }
      const user = (await new User(fields).save()).toObject()
      if (mayMail) await mailInvitation(user, by)
      return user
    })
  } catch (error) {
    throw isDuplicateKey(error) ? emailTaken() : error
  }
}

/**
 * Mails a new link, and voids the former one. Throws StateConflict if the user has accepted or is disabled, and
 * TooManyRequests.
 */
export async function inviteAgain(by: Manager, id: string): Promise<UserDocument> {
  const mayMail = await mayInvite(by.tenant_id, (await findUser(by.tenant_id, id)).email)
  return changeGrants(by.tenant_id, async () => {
    const user = await manageable(by, id)
    if (user.status !== 'invited') throw new StateConflict('invite', user.status)
    if (mayMail) await mailInvitation(user, by)
    return user
  })
}

async function mailInvitation(user: UserDocument, by: Manager): Promise<void> {
  const token = await issueToken(user, 'invitation')
  const ways = waysToUse(token, 'accept-invitation', '/api/v1/auth/accept-invitation')
  await queueMail({
    to: user.email,
    subject: 'You are invited to Keelson',
    text: `${by.email ?? 'Your team'} invites you to Keelson. Within 7 days you can choose a password here:\n\n${ways}`,
  })
}

/**
 * Changes a user. Disabling ends the user's logins. Throws NotFound, GrantDenied if the user has more permissions than
 * the caller before or after the change, InvalidInput for an unknown role, and `last_owner`.
 */
export function changeUser(
  by: Manager,
  id: string,
  change: { name?: string | undefined; roles?: string[] | undefined; disabled?: boolean | undefined },
): Promise<UserDocument> {
  return changeGrants(by.tenant_id, async () => {
    const user = await manageable(by, id)
    const roles = change.roles ? await newRoles(by, user, change.roles) : user.roles
    const enabled = user.password_hash === null ? 'invited' : 'active'
    const status = change.disabled === undefined ? user.status : change.disabled ? 'disabled' : enabled
    const changed = await User.findOneAndUpdate(
      { tenant_id: by.tenant_id, _id: id },
      { $set: { name: change.name ?? user.name, roles, status } },
      { returnDocument: 'after' },
    ).lean()
    if (!changed) throw new NotFound('user')
    await keepAnOwner(user)
    if (status === 'disabled') await endLogins(user)
    else if (change.roles) await copyRoles(changed, await customRolesNamed(by.tenant_id, roles))
    return changed
  })
}

/** Throws NotFound, GrantDenied and `last_owner`. */
export function removeUser(by: Manager, id: string): Promise<void> {
  return changeGrants(by.tenant_id, async () => {
    const user = await manageable(by, id)
    await User.deleteOne({ tenant_id: by.tenant_id, _id: id })
    await keepAnOwner(user)
    await endLogins(user)
    await removeAuthenticator(user)
  })
}

async function manageable(by: Manager, id: string): Promise<UserDocument> {
  const user = await findUser(by.tenant_id, id)
  const custom = await customRolesNamed(by.tenant_id, user.roles)
  mustHold(by.permissions, permissionsOf(user.roles, custom))
  return user
}

/** The platform's operator role can be neither granted nor revoked here: a user who has it keeps it. */
async function newRoles(by: Manager, user: UserDocument, asked: string[]): Promise<string[]> {
  const kept = user.roles.filter((role) => role === operatorRole)
  const roles = [...new Set(asked)].filter((role) => !(role === operatorRole && kept.length))
  mustHold(by.permissions, await permissionsOfRoles(by.tenant_id, roles))
  return [...roles, ...kept]
}

async function permissionsOfRoles(tenantId: string, roles: string[]): Promise<ReadonlySet<Permission>> {
  const custom = await customRolesNamed(tenantId, roles)
  const names = new Set<string>([...builtInRoles, ...custom.map(({ name }) => name)])
  const unknown = roles.filter((role) => !names.has(role))
  if (unknown.length) {
    throw new InvalidInput(
      422,
      unknown.map((role) => ({ pointer: '/roles', message: `the role ${role} does not exist` })),
    )
  }
  return permissionsOf(roles, custom)
}

/** Throws `last_owner` if no active owner is left. Call in the transaction that changed `before`. */
async function keepAnOwner({ tenant_id, status, roles }: UserDocument): Promise<void> {
  if (status !== 'active' || !roles.includes('owner')) return
  if (await User.exists({ tenant_id, status: 'active', roles: 'owner' })) return
  throw new Problem(409, 'last_owner', 'A tenant needs an owner', 'Make another user an owner first')
}

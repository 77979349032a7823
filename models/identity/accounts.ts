import { Problem } from '../../lib/problem.ts'
import { isDuplicateKey, transaction } from '../database.ts'
import { hashToken } from '../secrets.ts'
import { everyTenant } from '../tenant-scope.ts'
import { attempt, clearFailures, mayMail } from './attempts.ts'
import { removeAuthenticator, useCode } from './authenticators.ts'
import { forgetBrowsers } from './browsers.ts'
import { waysToUse } from './links.ts'
import { queueMail } from './mails.ts'
import { issueToken, readToken, useToken, voidTokens } from './one-time-tokens.ts'
import { closeSessions } from './sessions.ts'
import { emailTaken, hashPassword, hasPassword, User, type UserDocument } from './users.ts'

// What users do with their own accounts.

type Owner = Pick<UserDocument, '_id' | 'tenant_id'>

/** Ends every access without the password: all sessions but one, remembered browsers, mailed tokens. */
export async function endLogins(user: Owner, exceptToken?: string): Promise<void> {
  await closeSessions(user._id, exceptToken)
  await forgetBrowsers(user)
  await voidTokens(user)
}

/** Throws `wrong_password`, and TooManyRequests after too many failures. */
export async function changePassword(
  user: UserDocument,
  { current_password, new_password }: { current_password: string; new_password: string },
  { address, token }: { address: string; token: string },
): Promise<void> {
  await attempt({ account: user.email, address, device: hashToken(token) }, async () => {
    if (!(await hasPassword(user, current_password))) throw wrong('password')
  })
  const password_hash = await hashPassword(new_password)
  await transaction(async () => {
    await User.updateOne({ _id: user._id, tenant_id: user.tenant_id }, { $set: { password_hash } })
    await endLogins(user, token)
  })
}

/** Requires the password or a code: a stolen session is not enough. Throws `wrong_password` or `wrong_code`. */
export async function dropAuthenticator(
  user: UserDocument,
  proof: { password?: string | undefined; otp?: string | undefined },
  { address, token }: { address: string; token: string },
): Promise<void> {
  const { password, otp } = proof
  await attempt({ account: user.email, address, device: hashToken(token) }, async () => {
    if (password !== undefined && !(await hasPassword(user, password))) throw wrong('password')
    if (password === undefined && !(await useCode(user, otp ?? ''))) throw wrong('code')
  })
  await removeAuthenticator(user)
  await forgetBrowsers(user)
}

const wrong = (what: 'password' | 'code'): Problem =>
  new Problem(403, `wrong_${what}`, `The ${what} is wrong`)

/** Mails a link to set a new password. Does nothing if no active user has this address. */
export async function requestReset(email: string): Promise<void> {
  const known = User.findOne({ email: email.toLowerCase(), status: 'active' }).setOptions(everyTenant)
  const user = await known.lean()
  if (!(await mayMail(email)) || !user) return
  await transaction(async () => {
    const token = await issueToken(user, 'password_reset')
    const ways = waysToUse(token, 'password-reset', '/api/v1/auth/password-reset/confirm')
    await queueMail({
      to: user.email,
      subject: 'Set a new password for Keelson',
      text: `Somebody, hopefully you, asked for a new password. You can set it here within an hour:\n\n${ways}
If it was not you, do nothing: your password stays as it is.\n`,
    })
  })
}

/** Sets the password with a mailed token, and ends all logins. The authenticator stays. Throws InvalidInput. */
export async function resetPassword(token: string, password: string, address: string): Promise<void> {
  const found = await readToken(token, 'password_reset')
  const password_hash = await hashPassword(password)
  const user = await setPassword(found, { status: 'active' }, { password_hash })
  await clearFailures({ account: user.email, address })
}

/**
 * Activates an invited user: this confirms the address. Throws InvalidInput, and `email_taken` if a user of another tenant
 * has confirmed it before. Only the owner of the mailbox learns of that.
 */
export async function acceptInvitation(token: string, password: string): Promise<void> {
  const found = await readToken(token, 'invitation')
  const password_hash = await hashPassword(password)
  try {
    await setPassword(found, { status: 'invited' }, { password_hash, status: 'active' })
  } catch (error) {
    throw isDuplicateKey(error) ? emailTaken() : error
  }
}

type Token = Awaited<ReturnType<typeof readToken>>

function setPassword(
  token: Token,
  when: Pick<UserDocument, 'status'>,
  set: Partial<UserDocument>,
): Promise<UserDocument> {
  const { tenant_id, user_id } = token
  return transaction(async () => {
    await useToken(token)
    const user = await User.findOneAndUpdate({ _id: user_id, tenant_id, ...when }, { $set: set }).lean()
    if (!user) throw new Problem(409, 'state_conflict', 'Not possible in this state')
    await endLogins(user)
    return user
  })
}

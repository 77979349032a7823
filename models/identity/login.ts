import { Unauthenticated } from '../../lib/problem.ts'
import { attempt, Unfinished } from './attempts.ts'
import { isEnrolled, useCode } from './authenticators.ts'
import { isRemembered, isRememberedAt, type Origin, rememberBrowser } from './browsers.ts'
import { hashToken } from '../secrets.ts'
import { openSession, type SessionKind } from './session-tokens.ts'
import { findByPassword, type UserDocument } from './users.ts'

export interface Credentials {
  email: string
  password: string
  /** A code of the authenticator app, or a recovery code. */
  otp?: string | undefined
  /** The token of a remembered browser. */
  remember_token?: string | undefined
  /** Whether to remember this browser. */
  remember?: boolean | undefined
}

export interface LoggedIn {
  token: string
  expires_at: Date
  remember_token: string | null
  user: UserDocument
}

/**
 * Every login of a user. Throws Unauthenticated: `invalid_credentials`, with the same answer and timing for known and
 * unknown addresses; `otp_required` and `invalid_otp` only after the right password. Throws TooManyRequests.
 */
export async function logIn(
  credentials: Credentials,
  { address, user_agent }: Origin,
  kind: SessionKind = 'api',
): Promise<LoggedIn> {
  const { email, password, otp, remember_token, remember } = credentials
  const device = (await isKnownDevice(credentials)) ? hashToken(remember_token ?? '') : undefined
  return attempt({ account: email, address, device }, async () => {
    const origin = { address, user_agent }
    const user = await findByPassword(email, password)
    if (!user) throw new Unauthenticated('The e-mail address or the password is wrong', 'invalid_credentials')
    const gaveCode = (await isEnrolled(user)) && (await proveSecond(user, otp, remember_token))
    return {
      ...(await openSession(user, origin, kind)),
      // Remember the browser only after a login with a code.
      remember_token: remember && gaveCode ? await rememberBrowser(user, origin) : null,
      user,
    }
  })
}

/** Whether the browser is one that this account remembers: failures elsewhere do not keep it from logging in. */
export const isKnownDevice = async ({ email, remember_token }: Partial<Credentials>): Promise<boolean> =>
  email !== undefined && remember_token !== undefined && isRememberedAt(email, remember_token)

/** Checks the second factor: true by a code, false by the browser's token. Throws if neither is valid. */
async function proveSecond(user: UserDocument, otp?: string, rememberToken?: string): Promise<boolean> {
  if (rememberToken && (await isRemembered(user, rememberToken))) return false
  if (!otp) {
    const cause = new Unauthenticated('Send the code of the authenticator app as otp', 'otp_required')
    throw new Unfinished('no code given', { cause })
  }
  if (await useCode(user, otp)) return true
  throw new Unauthenticated('The code is wrong or was used before', 'invalid_otp')
}

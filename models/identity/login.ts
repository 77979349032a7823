import { Unauthenticated } from '../../lib/problem.ts'
import { attempt, Unfinished } from './attempts.ts'
import { isEnrolled, useCode } from './authenticators.ts'
import { isRemembered, type Origin, rememberBrowser } from './browsers.ts'
import { openSession } from './session-tokens.ts'
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
export function logIn(credentials: Credentials, origin: Origin): Promise<LoggedIn> {
  const { email, password, otp, remember_token, remember } = credentials
  return attempt(email, origin.address, async () => {
    const user = await findByPassword(email, password)
    if (!user) throw new Unauthenticated('The e-mail address or the password is wrong', 'invalid_credentials')
    const gaveCode = (await isEnrolled(user)) && (await proveSecond(user, otp, remember_token))
    return {
      ...(await openSession(user, origin)),
      // Remember the browser only after a login with a code.
      remember_token: remember && gaveCode ? await rememberBrowser(user, origin) : null,
      user,
    }
  })
}

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

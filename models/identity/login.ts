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
  /** Of a browser that gave a code before. */
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
 * The one way in. Throws Unauthenticated: `invalid_credentials`, the same in the same time whether the address is
 * known or not; `otp_required` and `invalid_otp` only to who has the password. Throws TooManyRequests.
 */
export function logIn(credentials: Credentials, origin: Origin): Promise<LoggedIn> {
  const { email, password, otp, remember_token, remember } = credentials
  return attempt(email, origin.address, async () => {
    const user = await findByPassword(email, password)
    if (!user) throw new Unauthenticated('The e-mail address or the password is wrong', 'invalid_credentials')
    const gaveCode = (await isEnrolled(user)) && (await proveSecond(user, otp, remember_token))
    return {
      ...(await openSession(user, origin)),
      // Only who gave a code now may be spared it later.
      remember_token: remember && gaveCode ? await rememberBrowser(user, origin) : null,
      user,
    }
  })
}

/** Whether by a code; by the browser's token otherwise. Throws where by neither. */
async function proveSecond(user: UserDocument, otp?: string, rememberToken?: string): Promise<boolean> {
  if (rememberToken && (await isRemembered(user, rememberToken))) return false
  if (!otp) {
    const cause = new Unauthenticated('Send the code of the authenticator app as otp', 'otp_required')
    throw new Unfinished('no code given', { cause })
  }
  if (await useCode(user, otp)) return true
  throw new Unauthenticated('The code is wrong or was used before', 'invalid_otp')
}

import { apart } from '../database.ts'
import { type ProviderName, providerOf } from './catalogue.ts'
import type { ConnectorDocument } from './connectors.ts'
import { finishLogin } from './finish.ts'
import { needPlace } from './keep.ts'
import {
  ConnectorLogin,
  type ConnectorLoginDocument,
  endLogin,
  keptGrant,
  loginDenied,
  loginExpired,
  loginOf,
  needRoom,
  openLogin,
  type Person,
  storeLogin,
} from './logins.ts'
import { LoginNotOffered, ProviderUnavailable } from './problems.ts'
import { type Grant, OauthRefused, pollDevice, startDevice } from './protocol.ts'
import { gitLogins, offersLogin, usualBaseUrl } from './providers.ts'
import { serverOfLogin } from './servers.ts'

// Logins by device code (RFC 8628). The platform keeps the pace that the provider wants, whatever its clients do.

export interface DeviceLogin {
  login: ConnectorLoginDocument
  user_code: string
  verification_url: string
  /** With the code in it. */
  verification_url_complete: string | null
}

export interface LoginWish {
  provider: ProviderName
  name: string | null
  connector_id: string | null
  scopes: string[] | null
}

/** RFC 8628, 3.5. */
const usualIntervalSec = 5
const slowerBySec = 5
const longestLoginSec = 3600

/** Throws NotFound, LoginNotOffered, ProviderUnavailable, `too_many_logins`. */
export async function startDeviceLogin(person: Person, wish: LoginWish): Promise<DeviceLogin> {
  const { provider, name, connector_id } = wish
  const { tenant_id } = person
  const { title, logins } = providerOf(provider)
  if (!offersLogin(provider, 'device')) throw new LoginNotOffered(title, 'device')
  await needPlace({ tenant_id, name, connector_id })
  await needRoom(person)
  const scopes = wish.scopes ?? [...(logins?.scopes ?? [])]
  const begun = await orUnavailable(title, () => startDevice(gitLogins(provider), scopes))
  const now = Date.now()
  const interval_sec = begun.interval ?? usualIntervalSec
  const login = await storeLogin(
    person,
    {
      kind: 'device',
      provider,
      base_url: usualBaseUrl(provider) ?? '',
      name,
      connector_id,
      scopes,
      redirect_uri: null,
      server: null,
      state_hash: null,
      next_poll_at: new Date(now + interval_sec * 1000),
      interval_sec,
      expires_at: new Date(now + Math.min(begun.expires_in, longestLoginSec) * 1000),
    },
    { verifier: null, device_code: begun.device_code, client_secret: null, grant: null },
  )
  return {
    login,
    user_code: begun.user_code,
    verification_url: begun.verification_uri,
    verification_url_complete: begun.verification_uri_complete ?? null,
  }
}

/** A refusal at the start is the operator's: the platform's client may not do this. */
async function orUnavailable<T>(title: string, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask()
  } catch (error) {
    if (error instanceof OauthRefused) throw new ProviderUnavailable(title, `it answers ${error.error}`)
    throw error
  }
}

export type DevicePoll =
  | { status: 'pending'; retry_after_sec: number; connector: null }
  | { status: 'done'; retry_after_sec: null; connector: ConnectorDocument }

/**
 * Asks whether the user has approved. An early call is `pending` without a question to the provider; of calls at once one
 * asks. Throws NotFound, `login_denied`, `login_expired`, `login_used`, and as `finishLogin`.
 */
export const pollDeviceLogin = (
  person: Person,
  loginId: string,
  confirmAccountChange: boolean,
): Promise<DevicePoll> =>
  apart(async () => {
    const login = await loginOf(person, { _id: loginId }, 'device')
    const kept = await keptGrant(login)
    if (kept) return done(await finishLogin(login, kept, confirmAccountChange))
    const claimed = await claimTurn(login)
    if (!claimed) return pending(await loginOf(person, { _id: loginId }, 'device'))
    const grant = await askFor(claimed)
    if (!grant) return pending(await loginOf(person, { _id: loginId }, 'device'))
    return done(await finishLogin(claimed, grant, confirmAccountChange))
  })

const done = (connector: ConnectorDocument): DevicePoll => ({
  status: 'done',
  retry_after_sec: null,
  connector,
})

const pending = ({ next_poll_at }: ConnectorLoginDocument): DevicePoll => ({
  status: 'pending',
  retry_after_sec: Math.max(1, Math.ceil(((next_poll_at?.getTime() ?? 0) - Date.now()) / 1000)),
  connector: null,
})

/** Takes the turn to ask the provider, and sets the next one. Null: it is too early, or another call has it. */
function claimTurn({ _id, tenant_id, interval_sec }: ConnectorLoginDocument) {
  const now = new Date()
  return ConnectorLogin.findOneAndUpdate(
    { _id, tenant_id, outcome: null, granted: false, next_poll_at: { $lte: now } },
    { $set: { next_poll_at: new Date(now.getTime() + interval_sec * 1000) } },
    { returnDocument: 'after' },
  ).lean()
}

/** Null: not yet. */
async function askFor(login: ConnectorLoginDocument): Promise<Grant | null> {
  const secret = await openLogin(login)
  try {
    return await pollDevice(serverOfLogin(login, secret), secret.device_code ?? '')
  } catch (error) {
    // The next poll asks again: the user may have approved meanwhile.
    if (error instanceof ProviderUnavailable) return null
    if (!(error instanceof OauthRefused)) throw error
    if (error.error === 'authorization_pending') return null
    if (error.error === 'slow_down') {
      await slowDown(login)
      return null
    }
    const isDenied = error.error === 'access_denied'
    const isExpired = error.error === 'expired_token'
    await endLogin(login, isDenied ? 'denied' : 'failed')
    if (isDenied) throw loginDenied()
    if (isExpired) throw loginExpired()
    throw new ProviderUnavailable(providerOf(login.provider).title, `it answers ${error.error}`)
  }
}

/** For this login for good. */
async function slowDown({ _id, tenant_id, interval_sec }: ConnectorLoginDocument): Promise<void> {
  const slower = interval_sec + slowerBySec
  await ConnectorLogin.updateOne(
    { _id, tenant_id, outcome: null },
    { $set: { interval_sec: slower, next_poll_at: new Date(Date.now() + slower * 1000) } },
  )
}

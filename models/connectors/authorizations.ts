import { InvalidInput, Problem } from '../../lib/problem.ts'
import { apart } from '../database.ts'
import { consolePage } from '../identity/links.ts'
import { hashToken } from '../secrets.ts'
import { providerOf } from './catalogue.ts'
import type { ConnectorDocument } from './connectors.ts'
import type { LoginWish } from './device.ts'
import { finishLogin } from './finish.ts'
import { needPlace } from './keep.ts'
import {
  ConnectorLogin,
  type ConnectorLoginDocument,
  endLogin,
  keptGrant,
  loginDenied,
  loginOf,
  loginUsed,
  needRoom,
  openLogin,
  type Person,
  storeLogin,
} from './logins.ts'
import { mcpLogins, type OwnClient } from './mcp.ts'
import { LoginNotOffered, ProviderUnavailable } from './problems.ts'
import { beginAuthorization, exchangeCode, type Grant, OauthRefused } from './protocol.ts'
import { baseUrlFor, gitLogins, offersLogin, usualBaseUrl } from './providers.ts'
import { serverOfLogin } from './servers.ts'

// Logins by authorization code with PKCE. The provider sends the user's browser back with a code, which the console or the
// user hands on.

const loginMs = 15 * 60_000

export interface AuthorizationWish extends LoginWish {
  /** Of an MCP server. */
  base_url: string | null
  client: OwnClient | null
}

/** Throws NotFound, InvalidInput, LoginNotOffered, `too_many_logins`, and as `mcpLogins`. */
export async function startAuthorization(
  person: Person,
  wish: AuthorizationWish,
): Promise<{ login: ConnectorLoginDocument; authorize_url: string }> {
  const { provider, name, connector_id } = wish
  if (!offersLogin(provider, 'oauth')) throw new LoginNotOffered(providerOf(provider).title, 'oauth')
  await needPlace({ tenant_id: person.tenant_id, name, connector_id })
  await needRoom(person)
  const redirect_uri = consolePage('connectors/callback')
  const { server, scopes, base_url, isFound } = await serverFor(wish, redirect_uri)
  const { url, state, verifier } = await beginAuthorization(server, { redirect_uri, scopes })
  const { client_secret, ...shown } = server
  const login = await storeLogin(
    person,
    {
      kind: 'oauth',
      provider,
      base_url,
      name,
      connector_id,
      scopes,
      redirect_uri,
      server: isFound ? shown : null,
      state_hash: hashToken(state),
      next_poll_at: null,
      interval_sec: 0,
      expires_at: new Date(Date.now() + loginMs),
    },
    { verifier, device_code: null, client_secret: isFound ? client_secret : null, grant: null },
  )
  return { login, authorize_url: url }
}

async function serverFor({ provider, base_url, client, scopes }: AuthorizationWish, redirect_uri: string) {
  if (provider === 'mcp') {
    const place = baseUrlFor(provider, base_url)
    const found = await mcpLogins(place, redirect_uri, client)
    return { server: found.server, scopes: scopes ?? found.scopes, base_url: place, isFound: true }
  }
  const notTaken = [
    base_url !== null && {
      pointer: '/base_url',
      message: 'is only for mcp: the provider’s URL is fixed',
    },
    client !== null && {
      pointer: '/client_id',
      message: 'is only for mcp: the platform uses its own client',
    },
  ].filter((mistake) => mistake !== false)
  if (notTaken.length) throw new InvalidInput(422, notTaken)
  const asked = scopes ?? [...(providerOf(provider).logins?.scopes ?? [])]
  return {
    server: gitLogins(provider),
    scopes: asked,
    base_url: usualBaseUrl(provider) ?? '',
    isFound: false,
  }
}

/** What a user pastes: the code, `code#state`, or the URL to which the browser was sent. */
export function readPasted(text: string): { redirected: URLSearchParams; state: string | null } {
  const trimmed = text.trim()
  const [, query] = /\?([^#]*)/.exec(trimmed) ?? []
  if (query !== undefined) {
    const redirected = new URLSearchParams(query)
    return { redirected, state: redirected.get('state') }
  }
  const [code = '', state = null] = trimmed.split('#', 2)
  return { redirected: new URLSearchParams({ code }), state }
}

/**
 * Exchanges what the user pastes, once. Without a login's id the state finds it. Throws NotFound, InvalidInput,
 * `state_mismatch`, `login_denied`, `login_expired`, `login_used`, `code_refused`, ProviderUnavailable, and as
 * `finishLogin`.
 */
export const completeAuthorization = (
  person: Person,
  {
    login_id,
    code,
    confirmAccountChange,
  }: { login_id: string | null; code: string; confirmAccountChange: boolean },
): Promise<ConnectorDocument> =>
  apart(async () => {
    const { redirected, state } = readPasted(code)
    if (!redirected.get('code') && !redirected.has('error'))
      throw new InvalidInput(422, [{ pointer: '/code', message: 'has no code' }])
    const state_hash = state === null ? null : hashToken(state)
    if (login_id === null && state_hash === null)
      throw new InvalidInput(422, [
        { pointer: '/login_id', message: 'is required, unless the code comes with its state' },
      ])
    const which = login_id === null ? { state_hash } : { _id: login_id }
    const login = await loginOf(person, which, 'oauth')
    if (state_hash !== null && state_hash !== login.state_hash) throw stateMismatch()
    const kept = await keptGrant(login)
    if (kept) return finishLogin(login, kept, confirmAccountChange)
    await claim(login)
    return finishLogin(login, await exchange(login, redirected), confirmAccountChange)
  })

/** A code is taken to the provider once. */
async function claim({ _id, tenant_id }: ConnectorLoginDocument): Promise<void> {
  const { modifiedCount } = await ConnectorLogin.updateOne(
    { _id, tenant_id, outcome: null, claimed_at: null },
    { $set: { claimed_at: new Date() } },
  )
  if (modifiedCount === 0) throw loginUsed()
}

async function exchange(login: ConnectorLoginDocument, redirected: URLSearchParams): Promise<Grant> {
  const secret = await openLogin(login)
  const proof = { redirected, redirect_uri: login.redirect_uri ?? '', verifier: secret.verifier ?? '' }
  try {
    return await exchangeCode(serverOfLogin(login, secret), proof)
  } catch (error) {
    if (error instanceof ProviderUnavailable) await giveBack(login)
    if (!(error instanceof OauthRefused)) throw error
    const isDenied = error.error === 'access_denied'
    await endLogin(login, isDenied ? 'denied' : 'failed')
    throw isDenied ? loginDenied() : codeRefused(login)
  }
}

/** The provider may not have seen the code. */
async function giveBack({ _id, tenant_id }: ConnectorLoginDocument): Promise<void> {
  await ConnectorLogin.updateOne({ _id, tenant_id, outcome: null }, { $set: { claimed_at: null } })
}

const stateMismatch = (): Problem =>
  new Problem(
    422,
    'state_mismatch',
    'The code belongs to another login',
    'Its state is not the state of this login',
  )

const codeRefused = ({ provider }: ConnectorLoginDocument): Problem =>
  new Problem(
    422,
    'code_refused',
    'The provider refuses the code',
    `${providerOf(provider).title} refuses the code: begin the login again`,
  )

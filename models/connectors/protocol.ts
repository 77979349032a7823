import * as oauth from 'oauth4webapi'
import { AddressNotAllowed, NoAnswer } from '../../lib/outbound.ts'
import { Problem } from '../../lib/problem.ts'
import { outbound } from '../outbound.ts'
import type { OauthServer } from './connectors.ts'
import { ProviderUnavailable } from './problems.ts'

// All that the platform says to OAuth servers, by oauth4webapi and through the guard of outbound requests. The package's
// errors carry the server's answers, with tokens in them: none of them leaves this file, not as a cause either.

/** An OAuth server, and the platform as its client. */
export interface LoginServer extends OauthServer {
  /** In sentences: GitHub. */
  title: string
  authorization_endpoint: string
  device_authorization_endpoint: string | null
  client_secret: string | null
  /** Whether it names itself in its redirects (RFC 9207). */
  names_issuer: boolean
  /** What the tokens are for (RFC 8707). */
  resource: string | null
  allows_http: boolean
}

/** What a login or a refresh gave. */
export interface Grant {
  token: string
  /** Null: the server gave none, so the one before stays. */
  refresh_token: string | null
  expires_at: Date | null
  refresh_expires_at: Date | null
  /** Null: as asked for. */
  scopes: string[] | null
}

/** The server refuses, by an error code of OAuth. */
export class OauthRefused extends Error {
  override readonly name = 'OauthRefused'
  readonly error: string

  constructor(error: string) {
    super(`The OAuth server answers ${error}`)
    this.error = error
  }
}

const withinMs = 10_000
const mostBytes = 256 * 1024

const withoutBody = new Set([101, 103, 204, 205, 304])

/** `fetch` through the guard. GitHub answers errors with 200, which no client of OAuth expects. */
async function guardedFetch(
  url: string,
  {
    method,
    headers,
    body,
  }: { method: string; headers: Record<string, string>; body?: URLSearchParams | string | null },
): Promise<Response> {
  const answer = await outbound().fetch(url, {
    method: method as 'GET' | 'POST',
    headers,
    ...(body === undefined || body === null ? {} : { body: String(body) }),
    withinMs,
    mostBytes,
  })
  const received = new Headers()
  for (const [name, value] of Object.entries(answer.headers))
    for (const one of [value ?? []].flat()) received.append(name, one)
  const status = answer.status === 200 && isError(answer.body) ? 400 : answer.status
  const text = withoutBody.has(status) ? null : new Uint8Array(answer.body)
  return new Response(text, { status, headers: received })
}

function isError(body: Buffer): boolean {
  try {
    const { error, access_token } = JSON.parse(body.toString()) as Record<string, unknown>
    return typeof error === 'string' && access_token === undefined
  } catch {
    return false
  }
}

const through = (allowsHttp: boolean) => ({
  [oauth.customFetch]: guardedFetch as never,
  [oauth.allowInsecureRequests]: allowsHttp,
})

/** Turns each failure into an error of ours. */
async function asking<T>(title: string, ask: () => Promise<T>): Promise<T> {
  try {
    return await ask()
  } catch (error) {
    if (error instanceof oauth.ResponseBodyError && error.status < 500) throw new OauthRefused(error.error)
    if (error instanceof oauth.AuthorizationResponseError) throw new OauthRefused(error.error)
    if (error instanceof oauth.WWWAuthenticateChallengeError) throw new OauthRefused('invalid_client')
    if (error instanceof NoAnswer) throw new ProviderUnavailable(title, error.message)
    if (error instanceof AddressNotAllowed) throw addressRefused(title)
    if (error instanceof Problem || error instanceof OauthRefused) throw error
    const isOauths =
      error instanceof oauth.OperationProcessingError ||
      error instanceof oauth.UnsupportedOperationError ||
      error instanceof oauth.ResponseBodyError ||
      error instanceof TypeError
    if (isOauths) throw new ProviderUnavailable(title, 'It does not answer as an OAuth server')
    throw error
  }
}

export const addressRefused = (title: string): Problem =>
  new Problem(422, 'address_not_allowed', 'The address is not allowed', `${title} is not at a public address`)

function partsOf(server: LoginServer) {
  const { client_id, client_auth, client_secret } = server
  const as: oauth.AuthorizationServer = {
    issuer: server.issuer,
    authorization_endpoint: server.authorization_endpoint,
    token_endpoint: server.token_endpoint,
    authorization_response_iss_parameter_supported: server.names_issuer,
    ...(server.device_authorization_endpoint
      ? { device_authorization_endpoint: server.device_authorization_endpoint }
      : {}),
    ...(server.revocation_endpoint ? { revocation_endpoint: server.revocation_endpoint } : {}),
  }
  const auth =
    client_auth === 'none' || client_secret === null
      ? oauth.None()
      : client_auth === 'client_secret_basic'
        ? oauth.ClientSecretBasic(client_secret)
        : oauth.ClientSecretPost(client_secret)
  const resource = server.resource === null ? {} : { additionalParameters: { resource: server.resource } }
  return { as, client: { client_id }, auth, options: { ...through(server.allows_http), ...resource } }
}

/** The URL that a user opens, with what proves later that the code is theirs. */
export async function beginAuthorization(
  server: LoginServer,
  { redirect_uri, scopes }: { redirect_uri: string; scopes: string[] },
): Promise<{ url: string; state: string; verifier: string }> {
  const state = oauth.generateRandomState()
  const verifier = oauth.generateRandomCodeVerifier()
  const url = new URL(server.authorization_endpoint)
  const parameters = {
    response_type: 'code',
    client_id: server.client_id,
    redirect_uri,
    state,
    code_challenge: await oauth.calculatePKCECodeChallenge(verifier),
    code_challenge_method: 'S256',
    ...(scopes.length ? { scope: scopes.join(' ') } : {}),
    ...(server.resource === null ? {} : { resource: server.resource }),
  }
  for (const [name, value] of Object.entries(parameters)) url.searchParams.set(name, value)
  return { url: url.href, state, verifier }
}

/** Exchanges the code of a redirect, whose state was compared before. Throws OauthRefused, ProviderUnavailable. */
export const exchangeCode = (
  server: LoginServer,
  {
    redirected,
    redirect_uri,
    verifier,
  }: { redirected: URLSearchParams; redirect_uri: string; verifier: string },
): Promise<Grant> =>
  asking(server.title, async () => {
    const { as, client, auth, options } = partsOf(server)
    const checked = readRedirect(as, client, redirected)
    const answer = await oauth.authorizationCodeGrantRequest(
      as,
      client,
      auth,
      checked,
      redirect_uri,
      verifier,
      options,
    )
    return grantOf(await oauth.processAuthorizationCodeResponse(as, client, answer))
  })

/** What a user pastes is no answer of the server: whatever is wrong with it is refused. */
function readRedirect(
  as: oauth.AuthorizationServer,
  client: oauth.Client,
  redirected: URLSearchParams,
): URLSearchParams {
  // A pasted code alone has no issuer; its login is that of this server.
  const isWhole = redirected.has('iss') || redirected.has('state')
  try {
    return oauth.validateAuthResponse(
      isWhole ? as : { issuer: as.issuer },
      client,
      redirected,
      oauth.skipStateCheck,
    )
  } catch (error) {
    if (error instanceof oauth.AuthorizationResponseError) throw error
    throw new OauthRefused('invalid_request')
  }
}

/** Throws OauthRefused, ProviderUnavailable. */
export const startDevice = (
  server: LoginServer,
  scopes: string[],
): Promise<oauth.DeviceAuthorizationResponse> =>
  asking(server.title, async () => {
    const { as, client, auth, options } = partsOf(server)
    const asked = new URLSearchParams({ scope: scopes.join(' ') })
    const answer = await oauth.deviceAuthorizationRequest(as, client, auth, asked, options)
    return oauth.processDeviceAuthorizationResponse(as, client, answer)
  })

/** Throws OauthRefused, also with `authorization_pending` and `slow_down`, and ProviderUnavailable. */
export const pollDevice = (server: LoginServer, deviceCode: string): Promise<Grant> =>
  asking(server.title, async () => {
    const { as, client, auth, options } = partsOf(server)
    const answer = await oauth.deviceCodeGrantRequest(as, client, auth, deviceCode, options)
    return grantOf(await oauth.processDeviceCodeResponse(as, client, answer))
  })

/** Throws OauthRefused, ProviderUnavailable. */
export const refreshGrant = (server: LoginServer, refreshToken: string): Promise<Grant> =>
  asking(server.title, async () => {
    const { as, client, auth, options } = partsOf(server)
    const answer = await oauth.refreshTokenGrantRequest(as, client, auth, refreshToken, options)
    return grantOf(await oauth.processRefreshTokenResponse(as, client, answer))
  })

/** RFC 7009. Throws OauthRefused, ProviderUnavailable. */
export const revokeToken = (server: LoginServer, token: string): Promise<void> =>
  asking(server.title, async () => {
    const { as, client, auth, options } = partsOf(server)
    await oauth.processRevocationResponse(await oauth.revocationRequest(as, client, auth, token, options))
  })

const longestSec = 100 * 365 * 86_400

function grantOf(answer: oauth.TokenEndpointResponse): Grant {
  const { access_token, refresh_token, expires_in, scope } = answer
  return {
    token: access_token,
    refresh_token: refresh_token ?? null,
    expires_at: inSec(expires_in),
    refresh_expires_at: inSec(answer['refresh_token_expires_in']), // of GitHub
    scopes: scope === undefined ? null : scope.split(/[ ,]+/).filter(Boolean),
  }
}

const inSec = (sec: unknown): Date | null =>
  typeof sec === 'number' && sec > 0 && sec < longestSec ? new Date(Date.now() + sec * 1000) : null

/** A document about a server. Null: it is not there. */
const found = (answer: Response): Response | null => (answer.status === 404 ? null : answer)

/** What says which servers log in for a resource (RFC 9728), for this URL. Null: nothing does. */
export const discoverResource = (
  title: string,
  url: string,
  allowsHttp: boolean,
): Promise<oauth.ResourceServer | null> =>
  asking(title, async () => {
    const at = new URL(url)
    const answer = found(await oauth.resourceDiscoveryRequest(at, through(allowsHttp)))
    return answer && oauth.processResourceDiscoveryResponse(at, answer)
  })

/** The metadata of a server (RFC 8414, or OpenID Connect's). Null: it has none. */
export const discoverServer = (
  title: string,
  issuer: string,
  allowsHttp: boolean,
): Promise<oauth.AuthorizationServer | null> =>
  asking(title, async () => {
    const at = new URL(issuer)
    for (const algorithm of ['oauth2', 'oidc'] as const) {
      const answer = found(await oauth.discoveryRequest(at, { ...through(allowsHttp), algorithm }))
      if (answer) return oauth.processDiscoveryResponse(at, answer)
    }
    return null
  })

/** Makes the platform a client of a server (RFC 7591). Throws OauthRefused, ProviderUnavailable. */
export const registerClient = (
  title: string,
  as: oauth.AuthorizationServer,
  redirect_uri: string,
  allowsHttp: boolean,
): Promise<Pick<LoginServer, 'client_id' | 'client_secret' | 'client_auth'>> =>
  asking(title, async () => {
    const asked = {
      client_name: 'Keelson',
      redirect_uris: [redirect_uri],
      grant_types: ['authorization_code', 'refresh_token'],
      response_types: ['code'],
      token_endpoint_auth_method: 'none',
    }
    const answer = await oauth.dynamicClientRegistrationRequest(as, asked, through(allowsHttp))
    const made = await oauth.processDynamicClientRegistrationResponse(answer)
    const client_secret = typeof made.client_secret === 'string' ? made.client_secret : null
    return { client_id: made.client_id, client_secret, client_auth: authOf(made, client_secret) }
  })

function authOf(client: oauth.Client, secret: string | null): LoginServer['client_auth'] {
  if (secret === null || client.token_endpoint_auth_method === 'none') return 'none'
  return client.token_endpoint_auth_method === 'client_secret_post'
    ? 'client_secret_post'
    : 'client_secret_basic'
}

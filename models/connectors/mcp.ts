import { Problem } from '../../lib/problem.ts'
import { outbound } from '../outbound.ts'
import { providerOf } from './catalogue.ts'
import { ProviderUnavailable } from './problems.ts'
import {
  addressRefused,
  discoverResource,
  discoverServer,
  type LoginServer,
  OauthRefused,
  registerClient,
} from './protocol.ts'

// The login at an MCP server, as its protocol says: the server names its OAuth server (RFC 9728), which describes itself
// (RFC 8414) and takes new clients (RFC 7591). All of these URLs are the tenant's, so the guard checks each.

/** A client that the tenant has registered there. */
export interface OwnClient {
  client_id: string
  client_secret: string | null
}

/**
 * The OAuth server of an MCP server, with a client of the platform's or the tenant's own. Throws ProviderUnavailable,
 * `address_not_allowed`, `pkce_not_supported`, and `client_needed` where clients cannot register.
 */
export async function mcpLogins(
  base_url: string,
  redirect_uri: string,
  own: OwnClient | null,
): Promise<{ server: LoginServer; scopes: string[] }> {
  const { title } = providerOf('mcp')
  const allows_http = outbound().isExempt(base_url)
  const { issuer, scopes } = await issuerOf(base_url, allows_http)
  needAllowed(issuer)
  const as = await discoverServer(title, issuer, allows_http)
  if (!as?.authorization_endpoint || !as.token_endpoint)
    throw new ProviderUnavailable(title, 'it names no OAuth server')
  for (const url of [as.authorization_endpoint, as.token_endpoint, as.registration_endpoint])
    if (url !== undefined) needAllowed(url)
  // Without it a stolen code is as good as a login: a server that does not say so is refused.
  if (!as.code_challenge_methods_supported?.includes('S256'))
    throw new Problem(
      422,
      'pkce_not_supported',
      'The login is not safe',
      'The OAuth server does not support PKCE with S256',
    )
  const client = own
    ? {
        ...own,
        client_auth: own.client_secret === null ? ('none' as const) : ('client_secret_post' as const),
      }
    : await registered(() => {
        if (!as.registration_endpoint) throw clientNeeded()
        return registerClient(title, as, redirect_uri, allows_http)
      })
  return {
    scopes,
    server: {
      title,
      issuer: as.issuer,
      authorization_endpoint: as.authorization_endpoint,
      token_endpoint: as.token_endpoint,
      device_authorization_endpoint: null,
      revocation_endpoint: as.revocation_endpoint ?? null,
      ...client,
      names_issuer: as.authorization_response_iss_parameter_supported === true,
      resource: base_url,
      allows_http,
    },
  }
}

/** Which server logs in for this resource. One that does not say so logs in itself, as the first MCP servers did. */
async function issuerOf(
  base_url: string,
  allowsHttp: boolean,
): Promise<{ issuer: string; scopes: string[] }> {
  const { title } = providerOf('mcp')
  const { origin } = new URL(base_url)
  for (const url of new Set([base_url, origin])) {
    const resource = await discoverResource(title, url, allowsHttp)
    const issuer = resource?.authorization_servers?.[0]
    if (issuer !== undefined) return { issuer, scopes: resource?.scopes_supported ?? [] }
  }
  return { issuer: origin, scopes: [] }
}

/** The guard would refuse them too; this says it before a client is registered. */
function needAllowed(url: string): void {
  if (outbound().faultOf(url) === null) return
  throw addressRefused(providerOf('mcp').title)
}

const clientNeeded = (): Problem =>
  new Problem(
    422,
    'client_needed',
    'A client id is required',
    'The OAuth server registers no clients: register one there, and give client_id',
  )

async function registered<T>(register: () => Promise<T>): Promise<T> {
  try {
    return await register()
  } catch (error) {
    if (error instanceof OauthRefused) throw clientNeeded()
    throw error
  }
}

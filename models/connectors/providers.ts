import { InvalidInput } from '../../lib/problem.ts'
import { outbound, urlFaults } from '../outbound.ts'
import { type ProviderName, providerOf } from './catalogue.ts'
import { LoginNotOffered } from './problems.ts'
import type { LoginServer } from './protocol.ts'

// What operators set about providers: where their APIs are, and as which client the platform logs in at Git hosts.

type GitHost = 'github' | 'gitlab' | 'gitea'
type Placed = Exclude<ProviderName, 'azure_openai' | 'openai_compatible' | 'mcp'>

/** The settings of a role, as config.ts names them. KEELSON_GITHUB_URL is its site, not its API. */
export type ProviderSettings = {
  [Name in Placed as `KEELSON_${Uppercase<Name>}_URL`]?: string | undefined
} & {
  [Name in GitHost as `KEELSON_${Uppercase<Name>}_${'CLIENT_ID' | 'CLIENT_SECRET'}`]?: string | undefined
} & { KEELSON_GITHUB_API_URL?: string | undefined }

let settings: ProviderSettings = {}

/** Call before anything else about connectors. Without it providers are at their usual places, without logins. */
export function useProviders(given: ProviderSettings): void {
  settings = given
}

const setting = (name: ProviderName, what: string): string | null =>
  (settings as Record<string, string | undefined>)[`KEELSON_${name.toUpperCase()}_${what}`] ?? null

export const withoutSlash = (url: string): string => url.replace(/\/+$/, '')

/** Where the API of a provider is, unless the tenant says another place. Null: the tenant must. */
export function usualBaseUrl(name: ProviderName): string | null {
  const url = setting(name, name === 'github' ? 'API_URL' : 'URL') ?? providerOf(name).base_url
  return url === null ? null : withoutSlash(url)
}

/** The base URL of a new connector. Throws InvalidInput. */
export function baseUrlFor(name: ProviderName, given: string | null): string {
  const { own_base_url, title } = providerOf(name)
  if (given === null) {
    const url = usualBaseUrl(name)
    if (url === null) throw wrong('is required: this provider has no fixed URL')
    return url
  }
  if (!own_base_url && withoutSlash(given) !== usualBaseUrl(name))
    throw wrong(`cannot be changed for ${title}; use openai_compatible for another server`)
  needSafe(given)
  return withoutSlash(given)
}

/** Throws InvalidInput unless a secret may be sent there: by TLS, or to a target that an operator allows. */
function needSafe(url: string): void {
  const fault = outbound().faultOf(url)
  if (fault) throw wrong(`${fault}: ${urlFaults[fault]}`)
  const { protocol, search, hash } = new URL(url)
  if (search || hash) throw wrong('must have no query and no fragment')
  if (protocol !== 'https:' && !outbound().isExempt(url)) throw wrong('must be https')
}

const wrong = (message: string): InvalidInput => new InvalidInput(422, [{ pointer: '/base_url', message }])

/** Whether tenants can log in there in this way. */
export function offersLogin(name: ProviderName, kind: 'oauth' | 'device'): boolean {
  if (name === 'mcp') return kind === 'oauth'
  const { logins } = providerOf(name)
  if (!logins || !setting(name, 'CLIENT_ID') || usualBaseUrl(name) === null) return false
  return kind === 'oauth' || logins.device !== undefined
}

/** The login of a Git host, with the platform's client there. Throws LoginNotOffered. */
export function gitLogins(name: ProviderName): LoginServer {
  const { logins, title } = providerOf(name)
  const client_id = setting(name, 'CLIENT_ID')
  const client_secret = setting(name, 'CLIENT_SECRET')
  const site = name === 'github' ? (setting(name, 'URL') ?? 'https://github.com') : usualBaseUrl(name)
  if (!logins || !client_id || !site) throw new LoginNotOffered(title, 'oauth')
  const at = (path: string): string => withoutSlash(site) + path
  return {
    title,
    issuer: withoutSlash(site),
    authorization_endpoint: at(logins.authorize),
    token_endpoint: at(logins.token),
    device_authorization_endpoint: logins.device === undefined ? null : at(logins.device),
    revocation_endpoint: logins.revoke?.as === 'rfc7009' ? at(logins.revoke.path) : null,
    client_id,
    client_secret,
    client_auth: client_secret === null ? 'none' : 'client_secret_post',
    names_issuer: false,
    resource: null,
    // An operator chose the site.
    allows_http: site.startsWith('http:'),
  }
}

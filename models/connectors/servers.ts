import { outbound } from '../outbound.ts'
import { providerOf } from './catalogue.ts'
import type { ConnectorDocument } from './connectors.ts'
import type { ConnectorSecret } from './credentials.ts'
import type { ConnectorLoginDocument, LoginSecret } from './logins.ts'
import type { LoginServer } from './protocol.ts'
import { gitLogins } from './providers.ts'

// The OAuth server of a login, and later of its connector: a Git host's, or the one that was discovered.

/** Throws LoginNotOffered. */
export const serverOfLogin = (
  { provider, server }: ConnectorLoginDocument,
  { client_secret }: Pick<LoginSecret, 'client_secret'>,
): LoginServer => (server ? { ...server, client_secret } : gitLogins(provider))

/** Throws LoginNotOffered. */
export function serverOfConnector(
  { provider, base_url, oauth }: ConnectorDocument,
  { client_secret }: Pick<ConnectorSecret, 'client_secret'>,
): LoginServer {
  if (!oauth) return gitLogins(provider)
  return {
    ...oauth,
    client_secret,
    title: providerOf(provider).title,
    authorization_endpoint: oauth.issuer, // nobody logs in by a connector
    device_authorization_endpoint: null,
    names_issuer: false,
    resource: base_url,
    allows_http: outbound().isExempt(base_url),
  }
}

import { sealSecret, unsealSecret } from '../secrets.ts'
import { providerOf } from './catalogue.ts'
import { type ConnectorDocument, sealContext } from './connectors.ts'

/** What a connector seals: a key, or the tokens of a login. */
export interface ConnectorSecret {
  /** The key or the access token. */
  token: string
  refresh_token: string | null
  /** Of the client that the platform registered at a discovered server. */
  client_secret: string | null
}

type Of = Pick<ConnectorDocument, '_id' | 'tenant_id' | 'version'>

export const sealCredential = (of: Of, secret: ConnectorSecret | null): Promise<string> | '-' =>
  secret ? sealSecret(secret, sealContext(of)) : '-'

/** Null for the kind `none`. */
export const openCredential = async (
  connector: Of & Pick<ConnectorDocument, 'secret_sealed'>,
): Promise<ConnectorSecret | null> =>
  connector.secret_sealed === '-'
    ? null
    : unsealSecret<ConnectorSecret>(connector.secret_sealed, sealContext(connector))

/** The headers that the provider wants, with this key or token among them. Names are lower case. */
export function headersFor(
  { provider, kind, key_header }: Pick<ConnectorDocument, 'provider' | 'kind' | 'key_header'>,
  secret: Pick<ConnectorSecret, 'token'> | null,
): Record<string, string> {
  const { key, headers } = providerOf(provider)
  if (!secret) return { ...headers }
  if (kind === 'oauth' || kind === 'device') return { ...headers, authorization: `Bearer ${secret.token}` }
  if (key_header !== null) return { ...headers, [key_header]: secret.token }
  return { ...headers, [key.header]: key.scheme ? `${key.scheme} ${secret.token}` : secret.token }
}

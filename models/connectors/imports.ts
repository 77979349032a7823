import { InvalidInput } from '../../lib/problem.ts'
import { type ProviderName, providerOf } from './catalogue.ts'
import { checkCredential } from './checks.ts'
import type { ConnectorDocument } from './connectors.ts'
import { type Destination, keepCredential } from './keep.ts'
import { baseUrlFor } from './providers.ts'

// A key that a tenant gives.

export interface NewKey {
  provider: ProviderName
  /** Null: the server asks for none. */
  api_key: string | null
  base_url: string | null
  /** Where an API as OpenAI's takes its key, if not in `Authorization`. */
  header: string | null
  api_version: string | null
}

const usualAzureVersion = '2024-10-21'

/**
 * Checks a key at its provider and keeps it. Throws InvalidInput, CredentialRefused, `address_not_allowed`, and as
 * `keepCredential`.
 */
export async function importKey(to: Destination, given: NewKey): Promise<ConnectorDocument> {
  const { provider, api_key } = given
  needFields(given)
  const kind = api_key === null ? ('none' as const) : ('api_key' as const)
  const place = {
    provider,
    kind,
    base_url: baseUrlFor(provider, given.base_url),
    key_header: given.header,
    api_version: provider === 'azure_openai' ? (given.api_version ?? usualAzureVersion) : null,
  }
  const secret = api_key === null ? null : { token: api_key, refresh_token: null, client_secret: null }
  const checked = await checkCredential(place, secret)
  return keepCredential(to, {
    ...place,
    ...checked,
    secret,
    scopes: [],
    oauth: null,
    expires_at: null,
    refresh_expires_at: null,
  })
}

/** Throws InvalidInput unless the provider takes what was given. */
function needFields({ provider, api_key, header, api_version }: NewKey): void {
  const { kinds, title } = providerOf(provider)
  const mistakes = [
    !kinds.includes('api_key') && { pointer: '/provider', message: `${title} takes no key` },
    api_key === null &&
      !kinds.includes('none') && { pointer: '/api_key', message: `is required: ${title} needs a key` },
    header !== null &&
      provider !== 'openai_compatible' && { pointer: '/header', message: 'is only for openai_compatible' },
    api_version !== null &&
      provider !== 'azure_openai' && { pointer: '/api_version', message: 'is only for azure_openai' },
  ].filter((mistake) => mistake !== false)
  if (mistakes.length) throw new InvalidInput(422, mistakes)
}

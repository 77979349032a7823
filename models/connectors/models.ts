import { AddressNotAllowed, NoAnswer } from '../../lib/outbound.ts'
import { Problem } from '../../lib/problem.ts'
import { outbound } from '../outbound.ts'
import { providerOf } from './catalogue.ts'
import type { ConnectorDocument } from './connectors.ts'
import { credentialOf } from './secrets.ts'

// Which models a provider has.

const mostBytes = 64 * 1024

/**
 * Whether the provider of a connector has a model of this name, for this credential. Null: it does not say, or not in time.
 * Runs apart from the caller's transaction.
 */
export async function hasModel(
  connector: ConnectorDocument,
  model: string,
  withinMs: number,
): Promise<boolean | null> {
  // A name with a slash would be another path, and vendors do not agree on how to write it.
  if (!providerOf(connector.provider).tells_models || model.includes('/')) return null
  try {
    const { base_url, headers } = await credentialOf(connector)
    const { status } = await outbound().fetch(`${base_url}/models/${encodeURIComponent(model)}`, {
      method: 'GET',
      headers: { accept: 'application/json', 'user-agent': 'Keelson', ...headers },
      withinMs,
      mostBytes,
    })
    if (status === 404) return false
    return status >= 200 && status <= 299 ? true : null
  } catch (error) {
    // The credential may be unusable, or its provider away: that is no fault of the model's name.
    if (error instanceof Problem || error instanceof NoAnswer || error instanceof AddressNotAllowed)
      return null
    throw error
  }
}

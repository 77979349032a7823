import { NotFound } from '../../lib/problem.ts'
import { makeUsers } from '../uses.ts'
import type { ProviderName } from './catalogue.ts'
import { Connector, type ConnectorDocument } from './connectors.ts'

const users = makeUsers<Pick<ConnectorDocument, '_id' | 'tenant_id' | 'provider'>>('connector')

/** Declares what uses connectors (models/uses.ts). */
export const usesConnectors = users.declare

/** Throws InUse. Call in the transaction of the deletion, after a write to the connector. */
export const needUnused = users.needNone

/**
 * The connector that something new will use, locked until the transaction ends: no deletion comes between. Throws
 * NotFound.
 */
export const holdConnector = (tenant_id: string, _id: string): Promise<ConnectorDocument> =>
  hold({ tenant_id, _id })

/** The same for the connector that is a provider's default at the time. */
export const holdDefault = (tenant_id: string, provider: ProviderName): Promise<ConnectorDocument> =>
  hold({ tenant_id, provider, is_default: true })

async function hold(
  which: Partial<Pick<ConnectorDocument, '_id' | 'tenant_id' | 'provider' | 'is_default'>>,
): Promise<ConnectorDocument> {
  const held = await Connector.findOneAndUpdate(
    { ...which, status: { $ne: 'revoked' } },
    { $inc: { turns: 1 } },
    { timestamps: false, returnDocument: 'after' },
  ).lean()
  if (!held) throw new NotFound('connector')
  return held
}

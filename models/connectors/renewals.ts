import { NotFound } from '../../lib/problem.ts'
import { mapAtOnce } from '../../lib/queue.ts'
import { apart } from '../database.ts'
import { providerOf } from './catalogue.ts'
import { checkCredential } from './checks.ts'
import { Connector, type ConnectorDocument, connectorOf, dueConnectors } from './connectors.ts'
import { openCredential } from './credentials.ts'
import { againMs, dueAt } from './due.ts'
import { titleOf } from './keep.ts'
import { CredentialRefused, ProviderUnavailable } from './problems.ts'
import { freshConnector, markInvalid, refreshIfFree, requireReauth } from './refresh.ts'

// What the platform does about connectors by itself. It looks each KEELSON_CONNECTOR_CHECK_SEC.

const atMost = 1_000
const atOnce = 8

/**
 * Refreshes the tokens that end soon, says which logins have ended, and checks what could not be checked before. Returns how
 * many connectors it looked at.
 */
export async function lookAfterConnectors(
  tell: (connector: ConnectorDocument, error: unknown) => void,
): Promise<number> {
  const due = await dueConnectors(new Date(), atMost)
  await mapAtOnce(due, atOnce, async (connector) => {
    try {
      await lookAfter(connector)
    } catch (error) {
      // One connector keeps no other from its turn.
      if (!(error instanceof NotFound)) tell(connector, error)
    }
  })
  return due.length
}

async function lookAfter(connector: ConnectorDocument): Promise<void> {
  const { _id, tenant_id, version, refreshable, expires_at, status } = connector
  if (refreshable) await refreshIfFree(connector)
  else if (expires_at && expires_at <= new Date())
    await requireReauth(
      connector,
      { _id, tenant_id, version, status },
      `The token of ${titleOf(connector)} has expired`,
    )
  else if (status === 'unchecked') await recheck(connector)
}

/** Asks the provider now, and keeps what it says. Throws NotFound, ProviderUnavailable. */
export const checkConnector = (connector: ConnectorDocument): Promise<ConnectorDocument> =>
  apart(async () => {
    const fresh = await freshConnector(connector)
    const asks = providerOf(fresh.provider).health !== null
    return asks && ['active', 'unchecked', 'invalid'].includes(fresh.status) ? recheck(fresh) : fresh
  })

async function recheck(connector: ConnectorDocument): Promise<ConnectorDocument> {
  const { _id, tenant_id, version } = connector
  const still = { _id, tenant_id, version }
  try {
    const checked = await checkCredential(connector, await openCredential(connector))
    if (checked.status === 'unchecked') {
      // Nothing is known that was not known before.
      const later = connector.status === 'unchecked' ? { due_at: new Date(Date.now() + againMs) } : {}
      await Connector.updateOne({ ...still, status: connector.status }, { $set: later })
      throw new ProviderUnavailable(titleOf(connector), checked.status_reason ?? 'it gave no reason')
    }
    const { status, status_reason, checked_at } = checked
    const account = checked.account ?? connector.account
    const due_at = dueAt({ ...connector, status })
    await Connector.updateOne(
      { ...still, status: connector.status },
      { $set: { status, status_reason, checked_at, account, due_at } },
    )
    return await connectorOf(connector, _id)
  } catch (error) {
    if (error instanceof CredentialRefused) return refusedCredential(connector)
    throw error
  }
}

/** What is left to do about a credential that its provider has refused. */
async function refusedCredential(connector: ConnectorDocument): Promise<ConnectorDocument> {
  const { _id, tenant_id, version, kind, status } = connector
  const still = { _id, tenant_id, version, status }
  if (kind === 'api_key' || kind === 'none')
    return status === 'invalid' ? connector : markInvalid(connector, still)
  return requireReauth(connector, still, `${titleOf(connector)} refuses the token`)
}

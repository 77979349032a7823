import { apart } from '../database.ts'
import { type ConnectorKind, type ProviderName, providerOf } from './catalogue.ts'
import { Connector, type ConnectorDocument, connectorOf } from './connectors.ts'
import { headersFor, openCredential } from './credentials.ts'
import { titleOf } from './keep.ts'
import { ConnectorUnusable, ProviderUnavailable, ReauthRequired } from './problems.ts'
import { freshConnector, requireReauth } from './refresh.ts'

/** What a request to the provider needs. Never stored, never logged, never passed to Temporal. */
export interface Credential {
  provider: ProviderName
  kind: ConnectorKind
  /** Without a slash at the end. */
  base_url: string
  /** All that the provider wants, with the secret among them. Names are lower case. */
  headers: Record<string, string>
  /** Of Azure OpenAI; null elsewhere. */
  api_version: string | null
  /** Of the secret. */
  version: number
}

/**
 * The credential of a tenant's connector, for one request or a few: ask again for the next. It runs apart from the caller's
 * transaction, which must not have written the connector before. Throws NotFound, `reauth_required`, `connector_unusable`,
 * and `provider_unavailable`.
 */
export const secretOf = (tenant_id: string, id: string): Promise<Credential> =>
  apart(async () => credentialOf(await connectorOf({ tenant_id }, id)))

/** The credential of a connector that was read just now. Throws as `secretOf` does. */
export const credentialOf = (found: ConnectorDocument): Promise<Credential> =>
  apart(async () => {
    const connector = await freshConnector(found)
    await needUsable(connector)
    const secret = await openCredential(connector)
    await noteUse(connector)
    const { provider, kind, base_url, api_version, version } = connector
    return { provider, kind, base_url, headers: headersFor(connector, secret), api_version, version }
  })

async function needUsable(connector: ConnectorDocument): Promise<void> {
  const { _id, tenant_id, version, status, status_reason, refreshable, expires_at } = connector
  if (status === 'reauth_required') throw new ReauthRequired(_id, status_reason)
  if (status === 'invalid' || status === 'revoked') throw new ConnectorUnusable(_id, status, status_reason)
  if (!expires_at || expires_at > new Date()) return
  const title = titleOf(connector)
  if (refreshable)
    throw new ProviderUnavailable(title, status_reason ?? 'its token has ended and is not refreshed yet')
  const still = { _id, tenant_id, version, status }
  const ended = await requireReauth(connector, still, `The token of ${title} has expired`)
  throw new ReauthRequired(_id, ended.status_reason)
}

const notedEveryMs = 60_000

/** A connector that many requests use is not written by each of them, and none of them waits for a journal. */
async function noteUse({ _id, tenant_id, last_used_at }: ConnectorDocument): Promise<void> {
  const now = new Date()
  if (last_used_at && now.getTime() - last_used_at.getTime() < notedEveryMs) return
  await Connector.updateOne(
    { _id, tenant_id },
    { $set: { last_used_at: now } },
    { timestamps: false, writeConcern: { w: 1, j: false } },
  )
}

/** The credential for OpenAI's API of a vendor that has it beside its own; that of any other provider as it is. */
export function atOpenaiApi(credential: Credential): Credential {
  const { provider, base_url, headers } = credential
  const { openai_path, key } = providerOf(provider)
  const { [key.header]: secret, ...others } = headers
  if (openai_path === undefined || secret === undefined) return credential
  return {
    ...credential,
    base_url: base_url + openai_path,
    headers: { ...others, authorization: `Bearer ${secret}` },
  }
}

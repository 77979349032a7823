import { newId } from '../../../lib/ids.ts'
import type { ProviderName } from '../../../models/connectors/catalogue.ts'
import { Connector, type ConnectorDocument } from '../../../models/connectors/connectors.ts'
import { sealCredential } from '../../../models/connectors/credentials.ts'
import { RagCollection } from '../../../models/retrieval/collections.ts'
import { transaction } from '../../../models/database.ts'

// What workflows refer to, as records alone.

/** A key for a server at this place. */
export async function insertConnector(
  tenant_id: string,
  provider: ProviderName,
  base_url: string,
  more: Partial<ConnectorDocument> & { token?: string } = {},
): Promise<string> {
  const { token = 'none', ...fields } = more
  const of = { _id: newId(), tenant_id, version: 1 }
  await new Connector({
    ...of,
    name: `connector-${of._id.slice(-12)}`,
    provider,
    kind: 'api_key',
    base_url,
    status: 'active',
    secret_sealed: await sealCredential(of, { token, refresh_token: null, client_secret: null }),
    ...fields,
  }).save()
  return of._id
}

/** A collection of a store that is not there. */
export async function insertCollection(
  tenant_id: string,
  status: 'ready' | 'error' = 'ready',
): Promise<{ id: string; name: string }> {
  const [id, name] = [newId(), `docs-${newId().slice(-12)}`]
  const made = new RagCollection({
    _id: id,
    tenant_id,
    name,
    status,
    store_id: newId(),
    embedder: { id: 'none@0', name: 'none', hash: '0', dimensions: 384, most_tokens: 256 },
    metadata_schema: {},
  })
  await transaction(async () => void (await made.save()))
  return { id, name }
}

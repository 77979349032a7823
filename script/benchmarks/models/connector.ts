import { newId } from '../../../lib/ids.ts'
import { Connector } from '../../../models/connectors/connectors.ts'
import { sealCredential } from '../../../models/connectors/credentials.ts'

/** A connector of a tenant to a provider with OpenAI's API, made in the database. Returns its id. */
export async function insertConnector(tenant_id: string, base_url: string): Promise<string> {
  const of = { _id: newId(), tenant_id, version: 1 }
  const secret = { token: 'sk-bench', refresh_token: null, client_secret: null }
  const secret_sealed = await sealCredential(of, secret)
  const fields = {
    name: 'bench',
    provider: 'openai_compatible',
    kind: 'api_key',
    base_url,
    status: 'active',
  } as const
  await new Connector({ ...of, ...fields, secret_sealed }).save()
  return of._id
}

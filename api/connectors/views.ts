import { z } from 'zod'
import { connectorKinds, providerNames } from '../../models/connectors/catalogue.ts'
import { type ConnectorDocument, connectorStates } from '../../models/connectors/connectors.ts'
import { Id, Name, Timestamp, time, timeOrNull } from '../fields.ts'

/** The fields of a connector, without any secret. */
export const ConnectorView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    name: z.string(),
    provider: z.enum(providerNames),
    kind: z.enum(connectorKinds).describe('How the tenant connected; `none`: the server needs no credential'),
    base_url: z.string().describe('The URL of the provider’s API'),
    api_version: z.string().nullable().describe('The API version of Azure OpenAI'),
    account: z
      .strictObject({ id: z.string(), login: z.string() })
      .nullable()
      .describe('Whose credential it is; null: the provider does not say'),
    scopes: z.array(z.string()),
    is_default: z.boolean().describe('Whether it is the default connector of its provider'),
    status: z.enum(connectorStates),
    status_reason: z.string().nullable(),
    secret_hint: z
      .string()
      .nullable()
      .describe('The last four characters of a key; null: there is none, or it is short'),
    expires_at: Timestamp.nullable().describe(
      'When the token expires; the platform refreshes it before then',
    ),
    refresh_expires_at: Timestamp.nullable(),
    checked_at: Timestamp.nullable().describe(
      'When the provider last answered a request with the credential',
    ),
    last_used_at: Timestamp.nullable(),
    version: z.int().describe('The number of the secret, counted from the first'),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'Connector' })

export const toView = (connector: ConnectorDocument): z.output<typeof ConnectorView> => ({
  id: connector._id,
  tenant_id: connector.tenant_id,
  name: connector.name,
  provider: connector.provider,
  kind: connector.kind,
  base_url: connector.base_url,
  api_version: connector.api_version,
  account: connector.account && { id: connector.account.id, login: connector.account.login },
  scopes: connector.scopes,
  is_default: connector.is_default,
  status: connector.status,
  status_reason: connector.status_reason,
  secret_hint: connector.secret_hint,
  expires_at: timeOrNull(connector.expires_at),
  refresh_expires_at: timeOrNull(connector.refresh_expires_at),
  checked_at: timeOrNull(connector.checked_at),
  last_used_at: timeOrNull(connector.last_used_at),
  version: connector.version,
  created_at: time(connector.created_at),
  updated_at: time(connector.updated_at),
})

/** The input of each way to a connector. */
export const destination = {
  name: Name.nullable()
    .default(null)
    .describe('The name; null: the provider’s name, with a number if that is taken'),
  connector_id: Id.nullable()
    .default(null)
    .describe('The connector whose credential is replaced; needs `connectors:update`'),
}
export const confirmation = z
  .boolean()
  .default(false)
  .describe('Allow the connector to change to another account')

export const path = '/api/v1/connectors'

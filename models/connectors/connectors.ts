import mongoose, { Schema } from 'mongoose'
import { NotFound } from '../../lib/problem.ts'
import { documentOptions, idField } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import {
  type Account,
  type ConnectorKind,
  connectorKinds,
  type ProviderName,
  providerNames,
} from './catalogue.ts'

/**
 * `active`: it can be used. `refreshing`: a worker has its lease. `reauth_required`: its user must log in again.
 * `invalid`: the provider refuses the key. `revoked`: the platform revoked it, and its deletion did not end.
 * `unchecked`: the provider did not answer when it was imported; it can be used.
 */
export const connectorStates = [
  'active',
  'refreshing',
  'reauth_required',
  'invalid',
  'revoked',
  'unchecked',
] as const
export type ConnectorState = (typeof connectorStates)[number]

/** A discovered OAuth server and the platform's client there. Those of Git hosts are operators' settings. */
export interface OauthServer {
  issuer: string
  token_endpoint: string
  revocation_endpoint: string | null
  client_id: string
  /** How the client shows that it is one; its secret is sealed with the tokens. */
  client_auth: 'none' | 'client_secret_basic' | 'client_secret_post'
}

/** A credential of a tenant for a provider. */
export interface ConnectorDocument {
  _id: string
  tenant_id: string
  /** Unique in the tenant. */
  name: string
  provider: ProviderName
  kind: ConnectorKind
  /** Where the provider's API is, without a slash at the end. */
  base_url: string
  /** The header of a key, if it is not the provider's usual one. */
  key_header: string | null
  /** Of Azure OpenAI. */
  api_version: string | null
  /** Null: the provider does not say, or was not asked yet. */
  account: Account | null
  scopes: string[]
  /** One for each provider of a tenant that has connectors there. */
  is_default: boolean
  status: ConnectorState
  status_reason: string | null
  /** A ConnectorSecret (secrets.ts); `-` for the kind `none`. Bound to tenant, id and version. */
  secret_sealed: string
  secret_hint: string | null
  oauth: OauthServer | null
  /** Whether there is a refresh token. */
  refreshable: boolean
  /** When the access token ends. Null: the provider does not say, which is no promise. */
  expires_at: Date | null
  refresh_expires_at: Date | null
  /** When a worker next refreshes or checks it. */
  due_at: Date | null
  /** Counts the secrets: each one has its own. */
  version: number
  /** Who refreshes it, and until when nobody else does. */
  lease_owner: string | null
  lease_until: Date | null
  /** When the provider last accepted or refused the credential. */
  checked_at: Date | null
  last_used_at: Date | null
  /** Counts the locks taken on it, as a parent's. */
  turns: number
  created_at: Date
  updated_at: Date
}

const text = { type: String, default: null }
const date = { type: Date, default: null }
const schema = new Schema<ConnectorDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    name: { type: String, required: true },
    provider: { type: String, required: true, enum: providerNames },
    kind: { type: String, required: true, enum: connectorKinds },
    base_url: { type: String, required: true },
    key_header: text,
    api_version: text,
    account: { type: Schema.Types.Mixed, default: null },
    scopes: { type: [String], default: [] },
    is_default: { type: Boolean, default: false },
    status: { type: String, required: true, enum: connectorStates },
    status_reason: text,
    secret_sealed: { type: String, required: true },
    secret_hint: text,
    oauth: { type: Schema.Types.Mixed, default: null },
    refreshable: { type: Boolean, default: false },
    expires_at: date,
    refresh_expires_at: date,
    due_at: date,
    version: { type: Number, required: true },
    lease_owner: text,
    lease_until: date,
    checked_at: date,
    last_used_at: date,
    turns: { type: Number, default: 0 },
  },
  { ...documentOptions, collection: 'connectors' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, name: 1 }, { unique: true })
schema.index(
  { tenant_id: 1, provider: 1 },
  { name: 'one_default', unique: true, partialFilterExpression: { is_default: true } },
)
schema.index({ due_at: 1 }, { partialFilterExpression: { due_at: { $type: 'date' } } })
export const Connector = mongoose.model<ConnectorDocument>('Connector', schema)

/** The context of a connector's seal: a secret of another tenant, connector or version does not open. */
export const sealContext = (of: Pick<ConnectorDocument, '_id' | 'tenant_id'> & { version?: number }) =>
  `connectors:${of.tenant_id}:${of._id}:${of.version}`
sealedField(Connector, 'secret_sealed', sealContext)

/**
 * The turn of transactions that change which connectors a tenant has. Not the tenant's own: a request with an
 * Idempotency-Key has that one, while a login ends apart from its transaction.
 */
export const turnOf = (tenant_id: string): string => `connectors of ${tenant_id}`

/** The tenant's connector. Throws NotFound. */
export async function connectorOf(
  { tenant_id }: { tenant_id: string },
  _id: string,
): Promise<ConnectorDocument> {
  const connector = await Connector.findOne({ _id, tenant_id }).lean()
  if (!connector) throw new NotFound('connector')
  return connector
}

/** The connectors that are due for a worker's look, the longest due first. */
export const dueConnectors = (now: Date, atMost: number): Promise<ConnectorDocument[]> =>
  Connector.find({ due_at: { $lte: now } })
    .setOptions(everyTenant)
    .sort({ due_at: 1 })
    .limit(atMost)
    .lean()

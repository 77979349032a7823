import { newId } from '../../lib/ids.ts'
import { InvalidInput, NameTaken, NotFound } from '../../lib/problem.ts'
import { hintOf } from '../../lib/secret-hints.ts'
import { transaction } from '../database.ts'
import { needQuota, tenantResource } from '../identity/tenants.ts'
import { lockParent } from '../parents.ts'
import { named } from '../resources.ts'
import { providerOf } from './catalogue.ts'
import { Connector, type ConnectorDocument, connectorOf, turnOf } from './connectors.ts'
import { type ConnectorSecret, sealCredential } from './credentials.ts'
import { dueAt } from './due.ts'
import { AccountDiffers } from './problems.ts'

// The tenant's connectors as records: new ones, replaced ones, names and defaults. Each change of a default locks the
// tenant, so that there is one.

/** A credential as a provider has accepted it. */
export type NewCredential = Pick<
  ConnectorDocument,
  | 'provider'
  | 'kind'
  | 'base_url'
  | 'key_header'
  | 'api_version'
  | 'account'
  | 'scopes'
  | 'status'
  | 'status_reason'
  | 'oauth'
  | 'expires_at'
  | 'refresh_expires_at'
  | 'checked_at'
> & { secret: ConnectorSecret | null }

/** Where a credential goes. */
export interface Destination {
  tenant_id: string
  /** Null: one made of the provider's. */
  name: string | null
  /** The connector that it replaces. */
  connector_id: string | null
  confirm_account_change: boolean
}

/**
 * Keeps a credential: as a new connector, or in place of another one's. Throws NotFound, InvalidInput, NameTaken,
 * AccountDiffers, QuotaExceeded. Joins the caller's transaction.
 */
export const keepCredential = (to: Destination, credential: NewCredential): Promise<ConnectorDocument> =>
  named('connector', to.name ?? '', () =>
    transaction(async () => {
      await lockParent(tenantResource, to.tenant_id, to.tenant_id)
      return to.connector_id === null
        ? create(to, credential)
        : replace(await replaceable(to, credential), to, credential)
    }, turnOf(to.tenant_id)),
  )

async function create(
  { tenant_id, name }: Destination,
  credential: NewCredential,
): Promise<ConnectorDocument> {
  await needQuota(tenant_id, 'max_connectors', await Connector.countDocuments({ tenant_id }))
  const _id = newId()
  const { provider } = credential
  const made = new Connector({
    _id,
    tenant_id,
    name: name ?? (await freeName(tenant_id, provider)),
    is_default: !(await Connector.exists({ tenant_id, provider, is_default: true })),
    ...(await fieldsOf({ _id, tenant_id, version: 1 }, credential)),
  })
  return (await made.save()).toObject()
}

/** The connector that a credential may replace. Throws NotFound, InvalidInput, AccountDiffers. */
async function replaceable(to: Destination, credential: NewCredential): Promise<ConnectorDocument> {
  const present = await connectorOf(to, to.connector_id ?? '')
  if (present.status === 'revoked') throw new NotFound('connector')
  if (present.provider !== credential.provider)
    throw new InvalidInput(422, [
      { pointer: '/connector_id', message: `is a connector for ${present.provider}` },
    ])
  if (!to.confirm_account_change && isOfAnother(present, credential))
    throw new AccountDiffers(whose(present), whose(credential))
  return present
}

type Owned = Pick<ConnectorDocument, 'account' | 'base_url'>

/** Without an account on both sides only the place can tell. */
const isOfAnother = (present: Owned, given: Owned): boolean =>
  present.base_url !== given.base_url ||
  (present.account !== null && given.account !== null && present.account.id !== given.account.id)

const whose = ({ account, base_url }: Owned): string =>
  account ? `${account.login} at ${base_url}` : `an account at ${base_url}`

/** Id, default and what uses the connector stay. A refresh that is under way writes nothing, as the version changes. */
async function replace(
  { _id, tenant_id, version, account }: ConnectorDocument,
  { name }: Destination,
  credential: NewCredential,
): Promise<ConnectorDocument> {
  const fields = await fieldsOf({ _id, tenant_id, version: version + 1 }, credential)
  const set = {
    ...fields,
    account: fields.account ?? account,
    lease_owner: null,
    lease_until: null,
    ...(name === null ? {} : { name }),
  }
  return changed({ _id, tenant_id, version }, set)
}

async function fieldsOf(
  of: Pick<ConnectorDocument, '_id' | 'tenant_id' | 'version'>,
  { secret, ...credential }: NewCredential,
) {
  const refreshable = secret !== null && secret.refresh_token !== null
  return {
    ...credential,
    version: of.version,
    secret_sealed: await sealCredential(of, secret),
    secret_hint: credential.kind === 'api_key' ? hintOf(secret?.token ?? '') : null,
    refreshable,
    due_at: dueAt({ ...credential, refreshable }),
  }
}

/** `github`, `github-2`, … */
async function freeName(tenant_id: string, provider: ConnectorDocument['provider']): Promise<string> {
  const base = provider.replaceAll('_', '-')
  const taken = new Set(await Connector.distinct('name', { tenant_id }))
  let name = base
  for (let count = 2; taken.has(name); count++) name = `${base}-${count}`
  return name
}

/** Refuses a login that could not be kept, before it begins. Throws NotFound, NameTaken. */
export async function needPlace({
  tenant_id,
  name,
  connector_id,
}: Omit<Destination, 'confirm_account_change'>): Promise<void> {
  if (connector_id !== null) await connectorOf({ tenant_id }, connector_id)
  if (name === null) return
  const taken = await Connector.exists({ tenant_id, name, _id: { $ne: connector_id ?? '' } })
  if (taken) throw new NameTaken('connector', name)
}

/** Throws NotFound, NameTaken. */
export const renameConnector = (
  { _id, tenant_id }: ConnectorDocument,
  name: string,
): Promise<ConnectorDocument> => named('connector', name, () => changed({ _id, tenant_id }, { name }))

/** Makes it the default for its provider. Throws NotFound. */
export const makeDefault = ({ _id, tenant_id, provider }: ConnectorDocument): Promise<ConnectorDocument> =>
  transaction(async () => {
    await lockParent(tenantResource, tenant_id, tenant_id)
    await Connector.updateMany(
      { tenant_id, provider, is_default: true, _id: { $ne: _id } },
      { $set: { is_default: false } },
    )
    return changed({ _id, tenant_id }, { is_default: true })
  }, turnOf(tenant_id))

/** Throws NotFound. */
async function changed(
  of: Partial<Pick<ConnectorDocument, 'version'>> & Pick<ConnectorDocument, '_id' | 'tenant_id'>,
  set: Partial<ConnectorDocument>,
): Promise<ConnectorDocument> {
  const after = await Connector.findOneAndUpdate(of, { $set: set }, { returnDocument: 'after' }).lean()
  if (!after) throw new NotFound('connector')
  return after
}

/** In sentences: `GitHub`. */
export const titleOf = ({ provider }: Pick<ConnectorDocument, 'provider'>): string =>
  providerOf(provider).title

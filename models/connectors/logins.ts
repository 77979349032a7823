import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import { documentOptions, idField } from '../resources.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { tenantScoped } from '../tenant-scope.ts'
import type { ProviderName } from './catalogue.ts'
import type { Destination } from './keep.ts'
import type { Grant, LoginServer } from './protocol.ts'

// Logins that are under way: a user opens a page of the provider, and the platform gets a token. A login is used once, by
// the user who began it.

/** What a login seals. */
export interface LoginSecret {
  /** Of PKCE. */
  verifier: string | null
  device_code: string | null
  /** Of a client that was registered for this login. */
  client_secret: string | null
  /** What the provider gave, while it could not be kept as a connector. */
  grant: Grant | null
}

export interface ConnectorLoginDocument {
  _id: string
  tenant_id: string
  /** The user or API client who began it. */
  user_id: string
  kind: 'oauth' | 'device'
  provider: ProviderName
  base_url: string
  /** What the connector will be. */
  name: string | null
  connector_id: string | null
  scopes: string[]
  redirect_uri: string | null
  /** A discovered server, without its client's secret. Those of Git hosts are operators' settings. */
  server: Omit<LoginServer, 'client_secret'> | null
  /** Keyed; null for devices. */
  state_hash: string | null
  secret_sealed: string
  /** Of devices: nobody asks the provider before. */
  next_poll_at: Date | null
  interval_sec: number
  /** When its code was taken to the provider. */
  claimed_at: Date | null
  /** Whether `grant` waits for the user. */
  granted: boolean
  /** How it ended. Null: it has not. */
  outcome: 'done' | 'denied' | 'failed' | null
  expires_at: Date
  created_at: Date
  updated_at: Date
}

const text = { type: String, default: null }
const date = { type: Date, default: null }
const schema = new Schema<ConnectorLoginDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    user_id: { type: String, required: true },
    kind: { type: String, required: true },
    provider: { type: String, required: true },
    base_url: { type: String, required: true },
    name: text,
    connector_id: text,
    scopes: { type: [String], default: [] },
    redirect_uri: text,
    server: { type: Schema.Types.Mixed, default: null },
    state_hash: text,
    secret_sealed: { type: String, required: true },
    next_poll_at: date,
    interval_sec: { type: Number, default: 0 },
    claimed_at: date,
    granted: { type: Boolean, default: false },
    outcome: text,
    expires_at: { type: Date, required: true },
  },
  { ...documentOptions, collection: 'connector_logins' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, outcome: 1 })
schema.index({ state_hash: 1 })
// Kept a while, so that a late poll learns what has become of it.
schema.index({ expires_at: 1 }, { expireAfterSeconds: 3600 })
export const ConnectorLogin = mongoose.model<ConnectorLoginDocument>('ConnectorLogin', schema)

const contextOf = ({ _id, tenant_id }: Pick<ConnectorLoginDocument, '_id' | 'tenant_id'>): string =>
  `connector_logins:${tenant_id}:${_id}`
sealedField(ConnectorLogin, 'secret_sealed', contextOf)

/** Who logs in. */
export interface Person {
  id: string
  tenant_id: string
}

const openAtMost = 50

/** Throws a 409 while the tenant has too many logins under way: each is a request to a provider. */
export async function needRoom({ tenant_id }: Person): Promise<void> {
  const open = await ConnectorLogin.countDocuments({
    tenant_id,
    outcome: null,
    expires_at: { $gt: new Date() },
  })
  if (open >= openAtMost)
    throw new Problem(
      409,
      'too_many_logins',
      'Too many logins are under way',
      `The tenant has ${openAtMost} open logins, and may have no more; each expires by itself`,
    )
}

type Begun = Omit<
  ConnectorLoginDocument,
  | '_id'
  | 'tenant_id'
  | 'user_id'
  | 'secret_sealed'
  | 'claimed_at'
  | 'granted'
  | 'outcome'
  | 'created_at'
  | 'updated_at'
>

export async function storeLogin(
  { id: user_id, tenant_id }: Person,
  login: Begun,
  secret: LoginSecret,
): Promise<ConnectorLoginDocument> {
  const _id = newId()
  const secret_sealed = await sealSecret(secret, contextOf({ _id, tenant_id }))
  const stored = new ConnectorLogin({ ...login, _id, tenant_id, user_id, secret_sealed })
  return (await stored.save()).toObject()
}

export const openLogin = (login: ConnectorLoginDocument): Promise<LoginSecret> =>
  unsealSecret<LoginSecret>(login.secret_sealed, contextOf(login))

/** The person's login. Throws NotFound, also for another's, and `login_expired`, `login_used`, `login_denied`. */
export async function loginOf(
  { id: user_id, tenant_id }: Person,
  which: Partial<Pick<ConnectorLoginDocument, '_id' | 'state_hash'>>,
  kind: ConnectorLoginDocument['kind'],
): Promise<ConnectorLoginDocument> {
  const login = await ConnectorLogin.findOne({ ...which, tenant_id, user_id, kind }).lean()
  if (!login) throw new NotFound('login')
  needOpen(login)
  return login
}

function needOpen({ outcome, expires_at }: ConnectorLoginDocument): void {
  if (outcome === 'denied') throw loginDenied()
  if (outcome !== null) throw loginUsed()
  if (expires_at <= new Date()) throw loginExpired()
}

/** Ends a login. False if it has ended before. Joins the caller's transaction. */
export async function endLogin(
  { _id, tenant_id }: Pick<ConnectorLoginDocument, '_id' | 'tenant_id'>,
  outcome: NonNullable<ConnectorLoginDocument['outcome']>,
): Promise<boolean> {
  const { modifiedCount } = await ConnectorLogin.updateOne(
    { _id, tenant_id, outcome: null },
    { $set: { outcome, secret_sealed: '-', granted: false } },
  )
  return modifiedCount > 0
}

/** Keeps what the provider gave while the login has not ended. */
export async function keepGrant(login: ConnectorLoginDocument, grant: Grant): Promise<void> {
  const { _id, tenant_id } = login
  const secret: LoginSecret = { ...(await openLogin(login)), grant }
  await ConnectorLogin.updateOne(
    { _id, tenant_id, outcome: null },
    { $set: { granted: true, secret_sealed: await sealSecret(secret, contextOf(login)) } },
  )
}

/** The grant that waits. */
export async function keptGrant(login: ConnectorLoginDocument): Promise<Grant | null> {
  if (!login.granted) return null
  const { grant } = await openLogin(login)
  if (!grant) return null
  return {
    ...grant,
    expires_at: dateOf(grant.expires_at),
    refresh_expires_at: dateOf(grant.refresh_expires_at),
  }
}

/** A seal holds JSON, so a date comes out of it as text. */
const dateOf = (sealed: Date | null): Date | null => (sealed ? new Date(sealed) : null)

/** Where the connector of a login goes. */
export const destinationOf = (
  { tenant_id, name, connector_id }: ConnectorLoginDocument,
  confirm_account_change: boolean,
): Destination => ({ tenant_id, name, connector_id, confirm_account_change })

const ended = (code: string, detail: string): Problem =>
  new Problem(409, code, 'The login has ended', `${detail}: begin the login again`)
export const loginUsed = () => ended('login_used', 'The login was used before')
export const loginExpired = () => ended('login_expired', 'The login has expired')
export const loginDenied = () => ended('login_denied', 'The user or the provider denied the login')

import { setTimeout } from 'node:timers/promises'
import { newId } from '../../lib/ids.ts'
import { Problem } from '../../lib/problem.ts'
import { noteActivity } from '../activity.ts'
import { apart, transaction } from '../database.ts'
import { tellEvent } from '../deploy/events.ts'
import { providerOf } from './catalogue.ts'
import { Connector, type ConnectorDocument, connectorOf } from './connectors.ts'
import { type ConnectorSecret, openCredential, sealCredential } from './credentials.ts'
import { againMs, dueAt } from './due.ts'
import { titleOf } from './keep.ts'
import { ProviderUnavailable } from './problems.ts'
import { type Grant, OauthRefused, refreshGrant } from './protocol.ts'
import { serverOfConnector } from './servers.ts'

// Refreshing tokens. Many servers accept a refresh token once, so one process refreshes a connector at a time, by a lease in
// the record, and writes only if the record still has the version that it read and its own lease.

/** Longer than an answer may take with its records. Then its process was killed, and another one refreshes. */
export const leaseMs = 30_000
const waitMs = leaseMs + 15_000
const lookEveryMs = 100

const refreshing = new Set<ConnectorDocument['status']>(['active', 'refreshing', 'unchecked'])

const isDue = ({ status, refreshable, due_at }: ConnectorDocument, now: Date): boolean =>
  refreshable && refreshing.has(status) && due_at !== null && due_at <= now

const underWay = new Map<string, Promise<ConnectorDocument>>()

/**
 * The connector with a token that is not about to end, refreshed by this process or another. It may be one that must be
 * connected again, or whose provider does not answer. Throws NotFound, ProviderUnavailable.
 */
export async function freshConnector(connector: ConnectorDocument): Promise<ConnectorDocument> {
  if (!isDue(connector, new Date())) return connector
  const { _id } = connector
  const present = underWay.get(_id) ?? apart(() => refreshed(connector)).finally(() => underWay.delete(_id))
  underWay.set(_id, present)
  return present
}

async function refreshed(connector: ConnectorDocument): Promise<ConnectorDocument> {
  const until = Date.now() + waitMs
  for (;;) {
    const after = await refreshIfFree(connector)
    if (!isDue(after, new Date())) return after
    if (Date.now() > until) throw new ProviderUnavailable(titleOf(connector), 'its token is being refreshed')
    await setTimeout(lookEveryMs)
  }
}

/** Refreshes the connector unless another process does. Returns it as it is then. Throws NotFound. */
export async function refreshIfFree(connector: ConnectorDocument): Promise<ConnectorDocument> {
  const leased = await takeLease(connector)
  return leased ? renew(leased) : connectorOf(connector, connector._id)
}

/** Null: another process has it, or nothing is due any more. */
function takeLease({ _id, tenant_id, version }: ConnectorDocument): Promise<ConnectorDocument | null> {
  const now = new Date()
  return Connector.findOneAndUpdate(
    {
      _id,
      tenant_id,
      version,
      refreshable: true,
      status: { $in: [...refreshing] },
      due_at: { $lte: now },
      $or: [{ lease_until: null }, { lease_until: { $lte: now } }],
    },
    {
      $set: {
        status: 'refreshing',
        lease_owner: newId(),
        lease_until: new Date(now.getTime() + leaseMs),
      },
    },
    { returnDocument: 'after' },
  ).lean()
}

/** The record as its lease's holder may write it. */
const held = ({ _id, tenant_id, version, lease_owner }: ConnectorDocument) => ({
  _id,
  tenant_id,
  version,
  lease_owner,
})

async function renew(leased: ConnectorDocument): Promise<ConnectorDocument> {
  const secret = await openCredential(leased)
  const { refresh_expires_at } = leased
  if (!secret?.refresh_token || (refresh_expires_at && refresh_expires_at <= new Date()))
    return requireReauth(leased, held(leased), `The login at ${titleOf(leased)} has expired`)
  try {
    const server = serverOfConnector(leased, secret)
    return await settle(leased, secret, await refreshGrant(server, secret.refresh_token))
  } catch (error) {
    if (error instanceof OauthRefused) return refused(leased, error)
    if (error instanceof Problem) return release(leased, error.message)
    throw error // the lease ends by itself
  }
}

/** Writes what the provider gave. A server that gives no refresh token keeps the one before. */
async function settle(
  leased: ConnectorDocument,
  before: ConnectorSecret,
  grant: Grant,
): Promise<ConnectorDocument> {
  const { token, expires_at } = grant
  const next = { ...leased, version: leased.version + 1, status: 'active' as const, expires_at }
  const secret = { ...before, token, refresh_token: grant.refresh_token ?? before.refresh_token }
  const after = await Connector.findOneAndUpdate(
    held(leased),
    {
      $set: {
        version: next.version,
        secret_sealed: await sealCredential(next, secret),
        status: next.status,
        status_reason: null,
        expires_at,
        refresh_expires_at: grant.refresh_expires_at ?? leased.refresh_expires_at,
        due_at: dueAt(next),
        checked_at: new Date(),
        lease_owner: null,
        lease_until: null,
        ...(grant.scopes ? { scopes: grant.scopes } : {}),
      },
    },
    { returnDocument: 'after' },
  ).lean()
  return after ?? connectorOf(leased, leased._id)
}

/**
 * A dead refresh token is believed only while the record is as it was read: otherwise it was another process, or the user,
 * that used or replaced it.
 */
function refused(leased: ConnectorDocument, { error }: OauthRefused): Promise<ConnectorDocument> {
  const { title, dead } = providerOf(leased.provider)
  if (!dead.includes(error)) return release(leased, `${title} refuses the platform’s client`)
  return requireReauth(leased, held(leased), `${title} no longer accepts the login`)
}

/** The token stays as it is, and is tried again later. */
async function release(leased: ConnectorDocument, status_reason: string): Promise<ConnectorDocument> {
  const after = await Connector.findOneAndUpdate(
    held(leased),
    {
      $set: {
        status: 'active',
        status_reason,
        due_at: new Date(Date.now() + againMs),
        lease_owner: null,
        lease_until: null,
      },
    },
    { returnDocument: 'after' },
  ).lean()
  return after ?? connectorOf(leased, leased._id)
}

/** If the record is still so: its user must connect it again, and is told. Returns it as it is then. */
export const requireReauth = (
  connector: ConnectorDocument,
  ifStill: Partial<ConnectorDocument> & Pick<ConnectorDocument, '_id' | 'tenant_id'>,
  reason: string,
): Promise<ConnectorDocument> =>
  giveUp(connector, ifStill, { status: 'reauth_required', kind: 'connector.reauth_required', reason })

/** If the record is still so: the provider refuses its key, and the tenant is told. Returns it as it is then. */
export const markInvalid = (
  connector: ConnectorDocument,
  ifStill: Partial<ConnectorDocument> & Pick<ConnectorDocument, '_id' | 'tenant_id'>,
): Promise<ConnectorDocument> =>
  giveUp(connector, ifStill, {
    status: 'invalid',
    kind: 'connector.refused',
    reason: `${titleOf(connector)} refuses the key`,
  })

async function giveUp(
  { _id, tenant_id, name, provider }: ConnectorDocument,
  ifStill: Partial<ConnectorDocument> & Pick<ConnectorDocument, '_id' | 'tenant_id'>,
  how: {
    status: 'reauth_required' | 'invalid'
    kind: 'connector.reauth_required' | 'connector.refused'
    reason: string
  },
): Promise<ConnectorDocument> {
  const { status, kind, reason } = how
  return transaction(async () => {
    const { modifiedCount } = await Connector.updateOne(ifStill, {
      $set: { status, status_reason: reason, due_at: null, lease_owner: null, lease_until: null },
    })
    if (modifiedCount > 0) {
      const message = `The connector ${name} must be connected again: ${reason}`
      const data = { connector_id: _id, provider, reason }
      await noteActivity({ tenant_id, resource_id: _id, kind: status, message, data })
      await tellEvent({ tenant_id, deploy_server_id: null, kind, message, data })
    }
    return connectorOf({ tenant_id }, _id)
  }, _id)
}

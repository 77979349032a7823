import { AddressNotAllowed, NoAnswer } from '../../lib/outbound.ts'
import { NotFound, Problem } from '../../lib/problem.ts'
import { forgetActivity } from '../activity.ts'
import { apart, transaction } from '../database.ts'
import { tenantResource } from '../identity/tenants.ts'
import { outbound } from '../outbound.ts'
import { lockParent } from '../parents.ts'
import { providerOf } from './catalogue.ts'
import { Connector, type ConnectorDocument, turnOf } from './connectors.ts'
import { type ConnectorSecret, openCredential } from './credentials.ts'
import { titleOf } from './keep.ts'
import { type LoginServer, OauthRefused, revokeToken } from './protocol.ts'
import { serverOfConnector } from './servers.ts'
import { needUnused } from './uses.ts'

/** Whether the provider has revoked the credential, and why not. */
export interface Revocation {
  revoked: boolean
  reason: string | null
}

/**
 * Deletes a connector, and first revokes its credential where the provider can. What uses it keeps it, unless `force`. Throws
 * NotFound, InUse.
 */
export async function deleteConnector(
  connector: ConnectorDocument,
  { force }: { force: boolean },
): Promise<Revocation> {
  const closed = await close(connector, force)
  const revocation = await apart(() => revoke(closed))
  await remove(closed)
  return revocation
}

/** From now on nothing can begin to use it. A deletion that is interrupted is asked for again. */
const close = ({ _id, tenant_id }: ConnectorDocument, force: boolean): Promise<ConnectorDocument> =>
  transaction(async () => {
    const closed = await Connector.findOneAndUpdate(
      { _id, tenant_id },
      {
        // A refresh that is under way loses its lease, and writes nothing.
        $set: { status: 'revoked', status_reason: 'It is being deleted', due_at: null, lease_owner: null },
        $inc: { turns: 1 },
      },
      { returnDocument: 'after' },
    ).lean()
    if (!closed) throw new NotFound('connector')
    if (!force) await needUnused(closed)
    return closed
  }, _id)

/** Promotes the oldest one of the provider that can be used. */
const remove = ({ _id, tenant_id, provider }: ConnectorDocument): Promise<void> =>
  transaction(async () => {
    await lockParent(tenantResource, tenant_id, tenant_id)
    const gone = await Connector.findOneAndDelete({ _id, tenant_id }).lean()
    await forgetActivity(tenant_id, _id)
    if (!gone?.is_default) return
    await Connector.findOneAndUpdate(
      { tenant_id, provider, status: { $in: ['active', 'refreshing', 'unchecked'] } },
      { $set: { is_default: true } },
      { sort: { created_at: 1 } },
    )
  }, turnOf(tenant_id))

async function revoke(connector: ConnectorDocument): Promise<Revocation> {
  const title = titleOf(connector)
  const secret = await openCredential(connector)
  if (!secret || connector.kind === 'api_key')
    return { revoked: false, reason: `Revoke the key at ${title}: the platform cannot` }
  try {
    const server = serverOfConnector(connector, secret)
    if (providerOf(connector.provider).logins?.revoke?.as === 'github')
      return await revokeAsGithub(connector, secret, server)
    if (server.revocation_endpoint === null)
      return { revoked: false, reason: `Revoke the login at ${title}: it has no endpoint for revocation` }
    // The refresh token first: with it go the others at most servers.
    for (const token of [secret.refresh_token, secret.token]) if (token) await revokeToken(server, token)
    return { revoked: true, reason: null }
  } catch (error) {
    const isTheirs =
      error instanceof Problem ||
      error instanceof OauthRefused ||
      error instanceof NoAnswer ||
      error instanceof AddressNotAllowed
    if (!isTheirs) throw error
    return { revoked: false, reason: `Revoke the login at ${title}: ${error.message}` }
  }
}

const withinMs = 10_000

/** GitHub has no endpoint of RFC 7009. */
async function revokeAsGithub(
  { base_url }: ConnectorDocument,
  { token }: ConnectorSecret,
  { client_id, client_secret, title }: LoginServer,
): Promise<Revocation> {
  if (client_secret === null)
    return { revoked: false, reason: `Revoke the login at ${title}: the platform’s client has no secret` }
  const { status } = await outbound().fetch(
    `${base_url}/applications/${encodeURIComponent(client_id)}/token`,
    {
      method: 'DELETE',
      headers: {
        ...providerOf('github').headers,
        authorization: `Basic ${Buffer.from(`${client_id}:${client_secret}`).toString('base64')}`,
        'content-type': 'application/json',
      },
      body: JSON.stringify({ access_token: token }),
      withinMs,
      mostBytes: 1024,
    },
  )
  // 404 and 422: there is no such token any more.
  if (status === 204 || status === 404 || status === 422) return { revoked: true, reason: null }
  return { revoked: false, reason: `Revoke the login at ${title}: it answers ${status}` }
}

import mongoose, { Schema } from 'mongoose'
import { Unauthenticated } from '../../lib/problem.ts'
import { transaction } from '../database.ts'
import { readOne } from '../read-one.ts'
import { schemaOptions } from '../schemas.ts'
import { sealedField } from '../sealed-fields.ts'
import { hashToken, newToken, sealSecret, unsealSecret } from '../secrets.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { attempt, clearFailures } from './attempts.ts'
import type { Permission } from './roles.ts'

/**
 * The root login and the API token of a deploy server, which can do what is below it and nothing else
 * (api/confined.ts). The secrets are shown on each read, so they are sealed; they are compared as keyed hashes.
 */
export interface DeployCredentialsDocument {
  /** The deploy server. */
  _id: string
  tenant_id: string
  login: string
  password_sealed: string
  password_hash: string
  token_sealed: string
  token_hash: string
  /** Counts logins. Each login writes it, and so conflicts with a concurrent rotation. */
  logins: number
  rotated_at: Date
}

const text = { type: String, required: true }
const schema = new Schema<DeployCredentialsDocument>(
  {
    _id: text,
    tenant_id: text,
    login: text,
    password_sealed: text,
    password_hash: text,
    token_sealed: text,
    token_hash: text,
    logins: { type: Number, default: 0 },
    rotated_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'deploy_credentials' },
)
tenantScoped(schema)
schema.index({ token_hash: 1 }, { unique: true })
export const DeployCredentials = mongoose.model<DeployCredentialsDocument>('DeployCredentials', schema)

const contextOf = (id: string): string => `deploy_credentials:${id}`
sealedField(DeployCredentials, 'password_sealed', ({ _id }) => contextOf(_id))
sealedField(DeployCredentials, 'token_sealed', ({ _id }) => contextOf(_id))

/** A root login. `_id` is the keyed hash of its token. */
interface DeploySessionDocument {
  _id: string
  tenant_id: string
  deploy_server_id: string
  login: string
  /** MongoDB deletes expired sessions. */
  expires_at: Date
}
const sessionSchema = new Schema<DeploySessionDocument>(
  {
    _id: text,
    tenant_id: text,
    deploy_server_id: text,
    login: text,
    expires_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'deploy_sessions' },
)
tenantScoped(sessionSchema)
sessionSchema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
sessionSchema.index({ tenant_id: 1, deploy_server_id: 1 })
export const DeploySession = mongoose.model<DeploySessionDocument>('DeploySession', sessionSchema)

const tokenKind = 'kdt'
const sessionKind = 'kds'
const sessionMs = 12 * 3_600_000

/** Whether this is the API token or the session of a deploy server. */
export const isDeployToken = (token: string): boolean =>
  token.startsWith(`${tokenKind}_`) || token.startsWith(`${sessionKind}_`)

interface DeployServerId {
  _id: string
  tenant_id: string
}

export interface DeploySecrets {
  login: string
  password: string
  api_token: string
  rotated_at: Date
}

/** Two new secrets, and what is stored of them. */
async function newSecrets(id: string) {
  const [password, api_token] = [newToken('kdp'), newToken(tokenKind)]
  const stored = {
    password_sealed: await sealSecret(password, contextOf(id)),
    password_hash: hashToken(password),
    token_sealed: await sealSecret(api_token, contextOf(id)),
    token_hash: hashToken(api_token),
    rotated_at: new Date(),
  }
  return { password, api_token, stored }
}

/** Makes the credentials of a deploy server, if it has none. */
export async function ensureDeployCredentials({ _id, tenant_id }: DeployServerId): Promise<void> {
  if (await DeployCredentials.exists({ _id, tenant_id })) return
  const { stored } = await newSecrets(_id)
  // Password managers know logins by origin, and one origin serves the dashboards of all deploy servers.
  const login = `root@${_id.slice(-12)}`
  await new DeployCredentials({ _id, tenant_id, login, ...stored }).save()
}

/** The secrets; null if the deploy server has none. */
export async function openDeployCredentials({
  _id,
  tenant_id,
}: DeployServerId): Promise<DeploySecrets | null> {
  const found = await DeployCredentials.findOne({ _id, tenant_id }).lean()
  if (!found) return null
  const open = (sealed: string): Promise<string> => unsealSecret(sealed, contextOf(_id))
  return {
    login: found.login,
    password: await open(found.password_sealed),
    api_token: await open(found.token_sealed),
    rotated_at: found.rotated_at,
  }
}

/**
 * Replaces both secrets and ends all sessions, from the next request on. Null if the deploy server has none. Also ends
 * the wait after failed logins.
 */
export async function rotateDeployCredentials({
  _id,
  tenant_id,
}: DeployServerId): Promise<DeploySecrets | null> {
  const { password, api_token, stored } = await newSecrets(_id)
  const rotated = await transaction(async () => {
    const changed = await DeployCredentials.findOneAndUpdate(
      { _id, tenant_id },
      { $set: stored },
      { returnDocument: 'after' },
    ).lean()
    await DeploySession.deleteMany({ tenant_id, deploy_server_id: _id })
    return changed
  }, _id)
  if (!rotated) return null
  await clearFailures({ account: _id, kind: 'root' })
  return { login: rotated.login, password, api_token, rotated_at: rotated.rotated_at }
}

/** Ends the credentials and all sessions, from the next request on. Call in the transaction that accepts the deletion. */
export async function endDeployCredentials({ _id, tenant_id }: DeployServerId): Promise<void> {
  await DeployCredentials.deleteOne({ _id, tenant_id })
  await DeploySession.deleteMany({ tenant_id, deploy_server_id: _id })
}

/** The same for all deploy servers of a tenant. */
export async function endTenantDeployCredentials(tenant_id: string): Promise<void> {
  await DeployCredentials.deleteMany({ tenant_id })
  await DeploySession.deleteMany({ tenant_id })
}

/**
 * Logs in with the root credentials of a deploy server. The token is not stored. Throws Unauthenticated, with the same
 * answer for an unknown deploy server, and TooManyRequests during the pause after five failures, as a user's login.
 */
export const logInToDeployServer = (
  id: string,
  { login, password }: { login: string; password: string },
  address: string,
): Promise<{ token: string; expires_at: Date }> =>
  // Counted apart from the logins of users: one address may serve both.
  attempt({ account: id, address, kind: 'root' }, () =>
    transaction(async () => {
      const found = await DeployCredentials.findOneAndUpdate(
        { _id: id, login, password_hash: hashToken(password) },
        { $inc: { logins: 1 } },
      )
        .setOptions(everyTenant)
        .lean()
      if (!found) throw new Unauthenticated('The login or the password is wrong', 'invalid_credentials')
      const token = newToken(sessionKind)
      const expires_at = new Date(Date.now() + sessionMs)
      const { tenant_id } = found
      await new DeploySession({
        _id: hashToken(token),
        tenant_id,
        deploy_server_id: id,
        login,
        expires_at,
      }).save()
      return { token, expires_at }
    }, id),
  )

/** Ends the session at once, on all replicas. */
export async function closeDeploySession(tenant_id: string, token: string): Promise<void> {
  await DeploySession.deleteOne({ _id: hashToken(token), tenant_id })
}

export interface DeployIdentity {
  tenant_id: string
  deploy_server_id: string
  /** For audit events. */
  name: string
}

/** The deploy server of this token, if it is valid. One query, since this runs on each request. */
export async function deployIdentityOf(token: string): Promise<DeployIdentity | null> {
  const hash = hashToken(token)
  if (token.startsWith(`${sessionKind}_`)) {
    const session = await readOne(DeploySession, '_id', hash)
    if (!session || session.expires_at.getTime() <= Date.now()) return null
    const { tenant_id, deploy_server_id, login } = session
    return { tenant_id, deploy_server_id, name: login }
  }
  const found = await readOne(DeployCredentials, 'token_hash', hash)
  if (!found) return null
  return {
    tenant_id: found.tenant_id,
    deploy_server_id: found._id,
    name: found.login.replace('root', 'token'),
  }
}

/** The permissions of a deploy server's credentials; api/confined.ts says where they hold. */
export const deployPermissions: ReadonlySet<Permission> = new Set<Permission>([
  'deploy_servers:read',
  'deploy_servers:update',
  'deploy_servers:manage',
  'operations:read',
  'operations:update',
])

/** For audit events of what a deploy server's credentials began: its login. Null if it has none. */
export async function deployLoginOf(tenant_id: string, _id: string): Promise<string | null> {
  return (await DeployCredentials.findOne({ _id, tenant_id }, { login: 1 }).lean())?.login ?? null
}

import mongoose, { Schema } from 'mongoose'
import { NameTaken, NotFound } from '../../lib/problem.ts'
import { endOf } from '../../lib/secret-hints.ts'
import { isDuplicateKey } from '../database.ts'
import { readOne } from '../read-one.ts'
import { documentOptions, idField } from '../resources.ts'
import { hashToken, newToken } from '../secrets.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { changeGrants, mustHold } from './grants.ts'
import { type Permission, type TenantPermission, tenantPermissions } from './roles.ts'

/** A credential for a machine. It belongs to the tenant, and outlives the user who made it. */
export interface ApiClientDocument {
  _id: string
  tenant_id: string
  name: string
  description: string
  client_id: string
  /** A keyed hash. The secret itself is not stored. */
  secret_hash: string
  secret_hint: string
  scopes: string[]
  /** Tokens of an earlier generation are refused. */
  token_generation: number
  expires_at: Date | null
  last_used_at: Date | null
  created_at: Date
  updated_at: Date
}

const schema = new Schema<ApiClientDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    name: { type: String, required: true },
    description: { type: String, default: '' },
    client_id: { type: String, required: true },
    secret_hash: { type: String, required: true },
    secret_hint: { type: String, required: true },
    scopes: { type: [String], default: [] },
    token_generation: { type: Number, default: 0 },
    expires_at: { type: Date, default: null },
    last_used_at: { type: Date, default: null },
  },
  { ...documentOptions, collection: 'api_clients' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, name: 1 }, { unique: true })
schema.index({ client_id: 1 }, { unique: true })
schema.index({ tenant_id: 1, created_at: -1, _id: -1 })
export const ApiClient = mongoose.model<ApiClientDocument>('ApiClient', schema)

interface Grantor {
  tenant_id: string
  permissions: ReadonlySet<Permission>
}

const newSecret = () => {
  const secret = newToken('kcs')
  return { secret, kept: { secret_hash: hashToken(secret), secret_hint: endOf(secret) } }
}

/** Makes a client and its secret, which is shown only once. Throws GrantDenied, NameTaken. */
export async function createApiClient(
  by: Grantor,
  fields: { name: string; description: string; scopes: TenantPermission[]; expires_at: Date | null },
): Promise<{ client: ApiClientDocument; secret: string }> {
  mustHold(by.permissions, fields.scopes)
  const { secret, kept } = newSecret()
  const client_id = newToken('kci').slice(0, 30)
  const document = { ...fields, ...kept, client_id, tenant_id: by.tenant_id, scopes: sorted(fields.scopes) }
  const saved = await named(fields.name, () => new ApiClient(document).save())
  return { client: saved.toObject(), secret }
}

/** Throws NotFound. */
export async function findApiClient(tenant_id: string, _id: string): Promise<ApiClientDocument> {
  return there(await ApiClient.findOne({ _id, tenant_id }).lean())
}

/**
 * Throws GrantDenied if the caller lacks a former or new scope, also to prolong the client; NotFound, NameTaken. A
 * caller who may delete it or revoke its tokens needs no scope for that: it only takes away.
 */
export function changeApiClient(
  by: Grantor,
  _id: string,
  changes: { name?: string; description?: string; scopes?: TenantPermission[]; expires_at?: Date | null },
): Promise<ApiClientDocument> {
  const { tenant_id } = by
  const set = { ...changes, ...(changes.scopes ? { scopes: sorted(changes.scopes) } : {}) }
  return changeGrants(tenant_id, async () => {
    const { scopes } = await findApiClient(tenant_id, _id)
    mustHold(by.permissions, [...scopes, ...(changes.scopes ?? [])])
    return named(changes.name ?? '', () => update({ _id, tenant_id }, { $set: set }))
  })
}

/**
 * Replaces the secret. The old secret is refused from now on; issued tokens stay valid. The caller learns the secret,
 * and so must hold all scopes of the client. Throws GrantDenied, NotFound.
 */
export function rotateSecret(
  by: Grantor,
  _id: string,
): Promise<{ client: ApiClientDocument; secret: string }> {
  const { tenant_id } = by
  const { secret, kept } = newSecret()
  return changeGrants(tenant_id, async () => {
    mustHold(by.permissions, (await findApiClient(tenant_id, _id)).scopes)
    return { client: await update({ _id, tenant_id }, { $set: kept }), secret }
  })
}

/** Revokes all issued tokens, from the next request on. Throws NotFound. */
export const revokeTokens = (tenant_id: string, _id: string): Promise<ApiClientDocument> =>
  update({ _id, tenant_id }, { $inc: { token_generation: 1 } })

/** Throws NotFound. */
export async function deleteApiClient(tenant_id: string, _id: string): Promise<void> {
  const { deletedCount } = await ApiClient.deleteOne({ _id, tenant_id })
  if (!deletedCount) throw new NotFound('API client')
}

/** The client with these credentials, if it exists and has not expired. */
export async function findByCredentials(
  client_id: string,
  secret: string,
): Promise<ApiClientDocument | null> {
  const client = await livingClient(client_id)
  // Both are keyed hashes: the timing of the comparison says nothing about the secret.
  return client && client.secret_hash === hashToken(secret) ? client : null
}

/** The client with this id, also if it has expired. */
export const findByClientId = (client_id: string): Promise<ApiClientDocument | null> =>
  readOne(ApiClient, 'client_id', client_id)

/** The client with this id; null if it was deleted or has expired. */
export async function livingClient(client_id: string): Promise<ApiClientDocument | null> {
  const client = await findByClientId(client_id)
  if (!client || (client.expires_at && client.expires_at.getTime() <= Date.now())) return null
  return client
}

// `last_used_at` is for display: a precision of one minute avoids a write on each request.
const noteUseMs = 60_000

/** Records that the client was used. The request does not wait for the write. */
export function noteUse({ _id, tenant_id, last_used_at }: ApiClientDocument): void {
  const now = new Date()
  if (last_used_at && now.getTime() - last_used_at.getTime() < noteUseMs) return
  const before = {
    $or: [{ last_used_at: null }, { last_used_at: { $lt: new Date(now.getTime() - noteUseMs) } }],
  }
  ApiClient.updateOne(
    { _id, tenant_id, ...before },
    { $set: { last_used_at: now } },
    { timestamps: false },
  ).catch(
    () => undefined, // the next use writes it
  )
}

const isScope = new Set<string>(tenantPermissions)

/** The permissions of a token: those of its scopes that the client still holds. Never a platform permission. */
export function effectiveScopes(client: ApiClientDocument, tokenScopes: string[]): Set<Permission> {
  const held = new Set(client.scopes)
  return new Set(
    tokenScopes.filter((scope): scope is TenantPermission => held.has(scope) && isScope.has(scope)),
  )
}

async function update(
  filter: { _id: string; tenant_id: string },
  change: object,
): Promise<ApiClientDocument> {
  return there(await ApiClient.findOneAndUpdate(filter, change, { returnDocument: 'after' }).lean())
}

function there(client: ApiClientDocument | null): ApiClientDocument {
  if (!client) throw new NotFound('API client')
  return client
}

async function named<T>(name: string, write: () => Promise<T>): Promise<T> {
  try {
    return await write()
  } catch (error) {
    if (isDuplicateKey(error) && 'name' in error.keyPattern) throw new NameTaken('API client', name)
    throw error
  }
}

const sorted = (scopes: string[]): string[] => [...new Set(scopes)].toSorted()

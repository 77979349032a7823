import mongoose, { Schema } from 'mongoose'
import { NotFound } from '../../lib/problem.ts'
import { idField } from '../resources.ts'
import { schemaOptions } from '../schemas.ts'
import { hashToken, newToken } from '../secrets.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { findByEmail, type UserDocument } from './users.ts'

/** The origin of a request. */
export interface Origin {
  address: string
  user_agent: string
}

/** A remembered browser: logins from it need no code for 30 days. Its token is stored as a hash. */
export interface BrowserDocument extends Origin {
  _id: string
  tenant_id: string
  user_id: string
  token_hash: string
  created_at: Date
  last_used_at: Date
  expires_at: Date
}

const schema = new Schema<BrowserDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    user_id: { type: String, required: true },
    token_hash: { type: String, required: true },
    address: { type: String, default: '' },
    user_agent: { type: String, default: '' },
    created_at: { type: Date, required: true },
    last_used_at: { type: Date, required: true },
    expires_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'browsers' },
)
tenantScoped(schema)
schema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
schema.index({ tenant_id: 1, user_id: 1, created_at: -1 })
schema.index({ token_hash: 1 })
export const Browser = mongoose.model<BrowserDocument>('Browser', schema)

const livesMs = 30 * 24 * 3_600_000

type Owner = Pick<UserDocument, '_id' | 'tenant_id'>
const of = ({ _id, tenant_id }: Owner) => ({ tenant_id, user_id: _id })

/** Remembers a browser. Returns the token that it sends at its next login. */
export async function rememberBrowser(user: Owner, origin: Origin): Promise<string> {
  const token = newToken('klb')
  const now = new Date()
  const expires_at = new Date(now.getTime() + livesMs)
  const hashed = { token_hash: hashToken(token), created_at: now, last_used_at: now, expires_at }
  await new Browser({ ...of(user), ...origin, ...hashed }).save()
  return token
}

/** Whether the token belongs to a remembered browser of this user. Records the use. */
export async function isRemembered(user: Owner, token: string): Promise<boolean> {
  const now = new Date()
  const { matchedCount } = await Browser.updateOne(
    { ...of(user), token_hash: hashToken(token), expires_at: { $gt: now } },
    { $set: { last_used_at: now } },
  )
  return matchedCount === 1
}

/**
 * Whether the token belongs to a browser that the account with this address remembers. An unknown token costs the same
 * for all addresses.
 */
export async function isRememberedAt(email: string, token: string): Promise<boolean> {
  const known = Browser.findOne({ token_hash: hashToken(token), expires_at: { $gt: new Date() } })
  const browser = await known.setOptions(everyTenant).lean()
  return browser !== null && (await findByEmail(email))?._id === browser.user_id
}

/** Throws NotFound. */
export async function forgetBrowser(user: Owner, id: string): Promise<void> {
  const { deletedCount } = await Browser.deleteOne({ ...of(user), _id: id })
  if (!deletedCount) throw new NotFound('browser')
}

export async function forgetBrowsers(user: Owner): Promise<void> {
  await Browser.deleteMany(of(user))
}

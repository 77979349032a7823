import { createHmac } from 'node:crypto'
import { compare, hash } from 'bcrypt'
import mongoose, { Schema } from 'mongoose'
import { Problem } from '../../lib/problem.ts'
import { documentOptions, idField } from '../resources.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'

export const userStatuses = ['invited', 'active', 'disabled'] as const

export interface UserDocument {
  _id: string
  tenant_id: string
  /**
   * Lower case. Unique in the tenant, and over all tenants once it is confirmed, since a login does not name a tenant: an
   * invitation takes nobody's address.
   */
  email: string
  name: string
  /** Null until the invitation is accepted. */
  password_hash: string | null
  roles: string[]
  /** Only an active user can log in. */
  status: (typeof userStatuses)[number]
  /** Counts logins. Each login writes it, and so conflicts with a concurrent change of the user. */
  logins: number
  created_at: Date
  updated_at: Date
}

const schema = new Schema<UserDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    email: { type: String, required: true },
    name: { type: String, default: '' },
    password_hash: { type: String, default: null },
    roles: { type: [String], default: [] },
    status: { type: String, enum: userStatuses, default: 'active' },
    logins: { type: Number, default: 0 },
  },
  { ...documentOptions, collection: 'users' },
)
tenantScoped(schema)
schema.index(
  { email: 1 },
  { name: 'confirmed_email', unique: true, partialFilterExpression: { password_hash: { $type: 'string' } } },
)
schema.index({ tenant_id: 1, email: 1 }, { unique: true })
schema.index({ tenant_id: 1, created_at: -1 })
export const User = mongoose.model<UserDocument>('User', schema)

// 2^11 rounds: 0.13 s when measured, above OWASP's minimum (10) and acceptable for a login.
const rounds = 11
export const hashPassword = (password: string): Promise<string> => hash(digest(password), rounds)

/**
 * bcrypt silently ignores all but the first 72 bytes: it gets 64 bytes that depend on the whole password. The HMAC key
 * makes them differ from plain digests leaked elsewhere.
 */
const digest = (password: string): string =>
  createHmac('sha384', 'keelson password').update(password.normalize('NFKC')).digest('base64')

// Compared against for an unknown user, so that the answer takes as long.
const nobody = hashPassword('nobody has this password')

/** Whether this is the user's password. Takes as long without a user or without a stored password. */
export async function hasPassword(user: UserDocument | null, password: string): Promise<boolean> {
  const right = await compare(digest(password), user?.password_hash ?? (await nobody))
  return right && Boolean(user?.password_hash)
}

/** The user who has confirmed this address. */
export const findByEmail = (email: string): Promise<UserDocument | null> =>
  User.findOne({ email: email.toLowerCase(), password_hash: { $type: 'string' } })
    .setOptions(everyTenant)
    .lean()

/** The refusal of an address that has a user already. Call it only where the caller may know of that user. */
export const emailTaken = (): Problem =>
  new Problem(409, 'email_taken', 'The address is taken', 'A user with this address already exists')

/**
 * Reads the user and locks them until the transaction ends; null unless active with the same password as in `user`. It
 * is a write: of two concurrent changes one fails, and MongoDB's driver retries it.
 */
export const holdUser = ({ _id, tenant_id, password_hash }: UserDocument): Promise<UserDocument | null> =>
  User.findOneAndUpdate(
    { _id, tenant_id, password_hash, status: 'active' },
    { $inc: { logins: 1 } },
    { timestamps: false, returnDocument: 'after' },
  ).lean()

/** The active user with this address and password, or null. The time does not tell which of the two is wrong. */
export async function findByPassword(email: string, password: string): Promise<UserDocument | null> {
  const user = await findByEmail(email)
  return (await hasPassword(user, password)) && user?.status === 'active' ? user : null
}

import { createHmac } from 'node:crypto'
import { compare, hash } from 'bcrypt'
import mongoose, { Schema } from 'mongoose'
import { documentOptions, idField } from '../resources.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'

export const userStatuses = ['invited', 'active', 'disabled'] as const

export interface UserDocument {
  _id: string
  tenant_id: string
  /** Lower case; unique over all tenants, since a login names no tenant. */
  email: string
  name: string
  /** Null until the invitation is accepted. */
  password_hash: string | null
  roles: string[]
  /** Only an active user can log in. */
  status: (typeof userStatuses)[number]
  /** Counts logins, so that a login and a change of the user meet in the record. */
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
schema.index({ email: 1 }, { unique: true })
schema.index({ tenant_id: 1, created_at: -1 })
export const User = mongoose.model<UserDocument>('User', schema)

// 2^11 rounds: 0.13 s on the machine this was written on, between OWASP's least (10) and what a login bears.
const rounds = 11
export const hashPassword = (password: string): Promise<string> => hash(digest(password), rounds)

/**
 * bcrypt reads 72 bytes and ignores the rest unsaid, so that it is given 64 that depend on all of the password.
 * The key sets them apart from plain digests that others may have lost.
 */
const digest = (password: string): string =>
  createHmac('sha384', 'keelson password').update(password.normalize('NFKC')).digest('base64')

// Compared with when there is no such user, so that the answer takes as long.
const nobody = hashPassword('nobody has this password')

/** Whether this is the user's password; takes as long where there is no user, or none with a password. */
export async function hasPassword(user: UserDocument | null, password: string): Promise<boolean> {
  const right = await compare(digest(password), user?.password_hash ?? (await nobody))
  return right && Boolean(user?.password_hash)
}

export const findByEmail = (email: string): Promise<UserDocument | null> =>
  User.findOne({ email: email.toLowerCase() }).setOptions(everyTenant).lean()

/**
 * The user as now, and until the present transaction ends; null unless active with the same password as in `user`. It
 * is a write: a change at the same time fails one of the two, which MongoDB's driver then repeats.
 */
export const holdUser = ({ _id, tenant_id, password_hash }: UserDocument): Promise<UserDocument | null> =>
  User.findOneAndUpdate(
    { _id, tenant_id, password_hash, status: 'active' },
    { $inc: { logins: 1 } },
    { timestamps: false, returnDocument: 'after' },
  ).lean()

/** The active user with this address and password, else null, in the same time whichever is wrong. */
export async function findByPassword(email: string, password: string): Promise<UserDocument | null> {
  const user = await findByEmail(email)
  return (await hasPassword(user, password)) && user?.status === 'active' ? user : null
}

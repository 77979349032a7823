import { compare, hash } from 'bcrypt'
import mongoose, { Schema } from 'mongoose'
import { documentOptions, idField } from '../resources.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'

export interface UserDocument {
  _id: string
  tenant_id: string
  /** Lower case; unique over all tenants, since a login names no tenant. */
  email: string
  name: string
  password_hash: string
  roles: string[]
  disabled: boolean
  created_at: Date
  updated_at: Date
}

const schema = new Schema<UserDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    email: { type: String, required: true },
    name: { type: String, default: '' },
    password_hash: { type: String, required: true },
    roles: { type: [String], default: [] },
    disabled: { type: Boolean, default: false },
  },
  { ...documentOptions, collection: 'users' },
)
tenantScoped(schema)
schema.index({ email: 1 }, { unique: true })
schema.index({ tenant_id: 1, created_at: -1 })
export const User = mongoose.model<UserDocument>('User', schema)

// 2^11 rounds: 0.13 s on the machine this was written on, between OWASP's least (10) and what a login bears.
const rounds = 11
export const hashPassword = (password: string): Promise<string> => hash(password, rounds)

// Compared with when there is no such user, so that the answer takes as long.
const nobody = hashPassword('nobody has this password')

export const findByEmail = (email: string): Promise<UserDocument | null> =>
  User.findOne({ email: email.toLowerCase() }).setOptions(everyTenant).lean()

/** The user with this address and password, else null, in the same time whichever is wrong. */
export async function findByPassword(email: string, password: string): Promise<UserDocument | null> {
  const user = await findByEmail(email)
  const right = await compare(password, user?.password_hash ?? (await nobody))
  return user && right && !user.disabled ? user : null
}

import { randomBytes } from 'node:crypto'
import mongoose, { Schema } from 'mongoose'
import { Secret, TOTP } from 'otpauth'
import { Problem } from '../../lib/problem.ts'
import { isDuplicateKey } from '../database.ts'
import { schemaOptions } from '../schemas.ts'
import { sealedField } from '../sealed-fields.ts'
import { hashToken, sealSecret, unsealSecret } from '../secrets.ts'
import { tenantScoped } from '../tenant-scope.ts'
import type { UserDocument } from './users.ts'

/** A user's authenticator app: time-based one-time passwords (RFC 6238), and recovery codes. */
interface AuthenticatorDocument {
  /** The user. */
  _id: string
  tenant_id: string
  secret_sealed: string
  /** False until a code proves that the app has the secret. Until then logins need no code. */
  confirmed: boolean
  /** The 30 s step of the last used code. Codes of this and earlier steps are refused. */
  last_step: number
  /** Keyed hashes of the unused recovery codes. */
  recovery_hashes: string[]
}

const schema = new Schema<AuthenticatorDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, required: true },
    secret_sealed: { type: String, required: true },
    confirmed: { type: Boolean, required: true },
    last_step: { type: Number, required: true },
    recovery_hashes: { type: [String], default: [] },
  },
  { ...schemaOptions, collection: 'authenticators' },
)
tenantScoped(schema)
export const Authenticator = mongoose.model<AuthenticatorDocument>('Authenticator', schema)
sealedField(Authenticator, 'secret_sealed')

type Owner = Pick<UserDocument, '_id' | 'tenant_id'>
const of = ({ _id, tenant_id }: Owner) => ({ _id, tenant_id })
const totpOf = (secret: Secret, label = ''): TOTP => new TOTP({ issuer: 'Keelson', label, secret })

/** Whether logins of this user need a code. */
export const isEnrolled = async (user: Owner): Promise<boolean> =>
  (await Authenticator.exists({ ...of(user), confirmed: true })) !== null

/** Makes a secret for an app, pending until `confirmAuthenticator`. Throws `authenticator_enrolled`. */
export async function enrolAuthenticator(
  user: Owner & Pick<UserDocument, 'email'>,
): Promise<{ secret: string; otpauth_url: string }> {
  const secret = new Secret({ size: 20 })
  const secret_sealed = await sealSecret(secret.base32, user._id)
  try {
    await Authenticator.updateOne(
      { ...of(user), confirmed: false },
      { $set: { secret_sealed, last_step: 0, recovery_hashes: [] } },
      { upsert: true },
    )
  } catch (error) {
    // No unconfirmed record matched, but one exists: it is confirmed.
    if (!isDuplicateKey(error)) throw error
    throw new Problem(409, 'authenticator_enrolled', 'An authenticator is enrolled', 'Remove it first')
  }
  return { secret: secret.base32, otpauth_url: totpOf(secret, user.email).toString() }
}

const recoveryCodes = 10

/** Activates the enrolled secret, and returns the recovery codes, shown only once. Null if the code is wrong. */
export async function confirmAuthenticator(user: Owner, code: string): Promise<string[] | null> {
  const pending = await Authenticator.findOne({ ...of(user), confirmed: false }).lean()
  const last_step = pending && (await stepOf(pending, code))
  if (!pending || last_step === null) return null
  const codes = Array.from({ length: recoveryCodes }, newRecoveryCode)
  const recovery_hashes = codes.map(hashOf)
  const { matchedCount } = await Authenticator.updateOne(
    { ...of(user), confirmed: false, secret_sealed: pending.secret_sealed },
    { $set: { confirmed: true, last_step, recovery_hashes } },
  )
  // The record changed meanwhile (enrolled or confirmed again, or resealed): check again.
  return matchedCount ? codes : confirmAuthenticator(user, code)
}

/** Consumes a code of the app or a recovery code. False if it is wrong or was used before. */
export async function useCode(user: Owner, code: string): Promise<boolean> {
  const enrolled = { ...of(user), confirmed: true }
  if (!/^\d{6}$/.test(code)) {
    const hash = hashOf(code)
    const used = await Authenticator.updateOne(
      { ...enrolled, recovery_hashes: hash },
      { $pull: { recovery_hashes: hash } },
    )
    return used.modifiedCount === 1
  }
  const authenticator = await Authenticator.findOne(enrolled).lean()
  const step = authenticator && (await stepOf(authenticator, code))
  if (step === null) return false
  const used = await Authenticator.updateOne(
    { ...enrolled, last_step: { $lt: step } },
    { $set: { last_step: step } },
  )
  return used.modifiedCount === 1
}

export async function removeAuthenticator(user: Owner): Promise<void> {
  await Authenticator.deleteOne(of(user))
}

/** The step of the code, at most one from the present step to allow for clock drift; null if no step matches. */
async function stepOf({ _id, secret_sealed }: AuthenticatorDocument, code: string): Promise<number | null> {
  const totp = totpOf(Secret.fromBase32(await unsealSecret<string>(secret_sealed, _id)))
  const timestamp = Date.now()
  const delta = totp.validate({ token: code, timestamp, window: 1 })
  return delta === null ? null : totp.counter({ timestamp }) + delta
}

/** 50 random bits: two groups of five characters in base 32. The limit on attempts prevents guessing. */
function newRecoveryCode(): string {
  const text = new Secret({ buffer: new Uint8Array(randomBytes(7)).buffer }).base32
  return `${text.slice(0, 5)}-${text.slice(5, 10)}`
}
const hashOf = (code: string): string => hashToken(code.toUpperCase().replaceAll(/[\s-]/g, ''))

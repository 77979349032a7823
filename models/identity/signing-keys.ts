import { type CryptoKey, exportJWK, generateKeyPair, importJWK, type JWK, type SignJWT } from 'jose'
import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { isDuplicateKey } from '../database.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'

/** A key pair with which the platform signs tokens. The private half is sealed. */
interface SigningKeyDocument {
  _id: string
  public_jwk: JWK
  private_sealed: string
  active: boolean
  created_at: Date
}

const schema = new Schema<SigningKeyDocument>(
  {
    _id: { type: String, required: true },
    public_jwk: { type: Schema.Types.Mixed, required: true },
    private_sealed: { type: String, required: true },
    active: { type: Boolean, required: true },
    created_at: { type: Date, required: true },
  },
  { versionKey: false, id: false, collection: 'signing_keys' },
)
schema.index({ active: 1 }, { unique: true, partialFilterExpression: { active: true } })
export const SigningKey = mongoose.model<SigningKeyDocument>('SigningKey', schema)

/** Makes the first key pair. Two at once make one. */
export async function ensureSigningKey(): Promise<void> {
  if (await SigningKey.exists({ active: true })) return
  const { publicKey, privateKey } = await generateKeyPair('EdDSA', { extractable: true })
  const kid = newId()
  try {
    await SigningKey.create({
      _id: kid,
      public_jwk: { ...(await exportJWK(publicKey)), kid, alg: 'EdDSA', use: 'sig' },
      private_sealed: sealSecret(await exportJWK(privateKey), kid),
      active: true,
      created_at: new Date(),
    })
  } catch (error) {
    if (!isDuplicateKey(error)) throw error
  }
}

/** What others verify our tokens with. */
export async function publicKeys(): Promise<{ keys: Record<string, unknown>[] }> {
  const keys = await SigningKey.find().lean()
  return { keys: keys.map((key) => ({ ...key.public_jwk })) }
}

let active: Promise<{ kid: string; key: CryptoKey | Uint8Array }> | undefined

/** Signs with the active key, which is read once. */
export async function sign(token: SignJWT, typ: string): Promise<string> {
  active ??= readActiveKey()
  const { kid, key } = await active
  return token.setProtectedHeader({ alg: 'EdDSA', typ, kid }).sign(key)
}

async function readActiveKey(): Promise<{ kid: string; key: CryptoKey | Uint8Array }> {
  const stored = await SigningKey.findOne({ active: true }).lean()
  if (!stored) throw new Error('no signing key: script/setup was not run')
  const key = await importJWK(unsealSecret<JWK>(stored.private_sealed, stored._id), 'EdDSA')
  return { kid: stored._id, key }
}

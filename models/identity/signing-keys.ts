import {
  createLocalJWKSet,
  type CryptoKey,
  exportJWK,
  generateKeyPair,
  importJWK,
  type JWK,
  type JWTVerifyGetKey,
  type SignJWT,
} from 'jose'
import mongoose, { Schema } from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { isDuplicateKey } from '../database.ts'
import { schemaOptions } from '../schemas.ts'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'

/** A key pair that signs the platform's tokens. The private key is sealed. */
export interface SigningKeyDocument {
  /** The key's id, `kid` in tokens. */
  _id: string
  /** 1, 2, …; only one of two concurrent rotations gets a number. */
  generation: number
  public_jwk: JWK
  private_sealed: string
  /** When it starts to sign. It is published earlier, so that all verifiers have it by then. */
  signs_from: Date
  /** When MongoDB deletes it; null for the newest. It is published until then. */
  expires_at: Date | null
  created_at: Date
}

const schema = new Schema<SigningKeyDocument>(
  {
    _id: { type: String, required: true },
    generation: { type: Number, required: true },
    public_jwk: { type: Schema.Types.Mixed, required: true },
    private_sealed: { type: String, required: true },
    signs_from: { type: Date, required: true },
    expires_at: { type: Date, default: null },
    created_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'signing_keys' },
)
schema.index({ generation: 1 }, { unique: true })
schema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
export const SigningKey = mongoose.model<SigningKeyDocument>('SigningKey', schema)
sealedField(SigningKey, 'private_sealed')

// Hosts get the keys every 10 s, and other API replicas read them as often: a minute is enough.
const publishedFirstMs = 60_000
const readAgainMs = 10_000
// Unknown key ids cause at most one read per second, since anyone can send them.
const lookAgainMs = 1_000
// Longer than the lifetime of any token (access tokens: 1 h).
const keptMs = 2 * 3_600_000

/** Makes the first key pair. Concurrent calls make one. */
export async function ensureSigningKey(): Promise<void> {
  if (await SigningKey.exists({})) return
  await insertKey(1, new Date())
}

/**
 * Makes and returns the next key pair. It starts to sign in a minute, when all verifiers have it. The present one stays
 * published until all tokens that it signed have expired.
 */
export async function rotateSigningKey(): Promise<SigningKeyDocument> {
  const newest = await SigningKey.findOne().sort({ generation: -1 }).lean()
  const signs_from = new Date(Date.now() + publishedFirstMs)
  await insertKey((newest?.generation ?? 0) + 1, signs_from)
  const expires_at = new Date(signs_from.getTime() + keptMs)
  const made = await SigningKey.findOne().sort({ generation: -1 }).lean()
  if (!made) throw new Error('the new signing key is gone')
  await SigningKey.updateMany(
    { generation: { $lt: made.generation }, expires_at: null },
    { $set: { expires_at } },
  )
  return made
}

async function insertKey(generation: number, signs_from: Date): Promise<void> {
  const { publicKey, privateKey } = await generateKeyPair('EdDSA', { extractable: true })
  const kid = newId()
  try {
    await SigningKey.create({
      _id: kid,
      generation,
      public_jwk: { ...(await exportJWK(publicKey)), kid, alg: 'EdDSA', use: 'sig' },
      private_sealed: await sealSecret(await exportJWK(privateKey), kid),
      signs_from,
      created_at: new Date(),
    })
  } catch (error) {
    if (!isDuplicateKey(error)) throw error
  }
}

interface KnownKeys {
  jwks: { keys: Record<string, unknown>[] }
  verifier: ReturnType<typeof createLocalJWKSet>
  signers: { kid: string; signs_from: Date; key: CryptoKey | Uint8Array }[]
}
let known: Promise<KnownKeys> | undefined
let readAt = 0

/** All keys, read again if the cached ones are older than `ms`. */
async function keysOfLast(ms: number): Promise<KnownKeys> {
  if (!known || Date.now() - readAt > ms) {
    readAt = Date.now()
    known = readKeys()
    known.catch(() => (known = undefined))
  }
  return known
}

async function readKeys(): Promise<KnownKeys> {
  const stored = await SigningKey.find().sort({ generation: -1 }).lean()
  const jwks = { keys: stored.map((key) => ({ ...key.public_jwk })) }
  return {
    jwks,
    verifier: createLocalJWKSet({ keys: stored.map(({ public_jwk }) => public_jwk) }),
    signers: await Promise.all(
      stored.map(async ({ _id: kid, signs_from, private_sealed }) => ({
        kid,
        signs_from,
        key: await importJWK(await unsealSecret<JWK>(private_sealed, kid), 'EdDSA'),
      })),
    ),
  }
}

/** The public keys that verify our tokens. */
export const publicKeys = async (): Promise<KnownKeys['jwks']> => (await keysOfLast(readAgainMs)).jwks

/** For jose: the key that a token's header names. An unknown key id causes a new read of the keys. */
export const verificationKey: JWTVerifyGetKey = async (header, token) => {
  const { jwks } = await keysOfLast(readAgainMs)
  const isKnown = jwks.keys.some(({ kid }) => kid === header?.kid)
  const { verifier } = await keysOfLast(isKnown ? readAgainMs : lookAgainMs)
  return verifier(header, token)
}

/** Signs with the newest key whose `signs_from` has passed. */
export async function sign(token: SignJWT, typ: string): Promise<string> {
  const { signers } = await keysOfLast(readAgainMs)
  const now = Date.now()
  const signer = signers.find(({ signs_from }) => signs_from.getTime() <= now)
  if (!signer) throw new Error('no signing key: script/setup was not run')
  return token.setProtectedHeader({ alg: 'EdDSA', typ, kid: signer.kid }).sign(signer.key)
}

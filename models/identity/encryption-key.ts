import mongoose, { Schema } from 'mongoose'
import { defineResource, documentOptions, platformFields, type ResourceDocument } from '../resources.ts'
import { type StateOf, states } from '../states.ts'

// What secrets at rest are encrypted with, as a resource: there is one, whose rotation is an operation like others.
// The keys themselves are data keys (models/data-keys.ts).

/** A rotation is not called off; whatever becomes of it, another one is possible. */
export const encryptionKeyStates = states(
  { active: { rotate: 'rotating' }, error: { rotate: 'rotating' } },
  { final: ['rotate'] },
)

export type EncryptionKeyDocument = ResourceDocument<StateOf<typeof encryptionKeyStates>>

export const encryptionKeyId = '01900000-0000-7000-8000-000000000001'

const schema = new Schema<EncryptionKeyDocument>(
  {
    _id: { type: String, required: true },
    ...platformFields(encryptionKeyStates),
    name: { type: String, default: 'of the platform' },
    status: { type: String, default: 'active', enum: encryptionKeyStates.all },
  },
  { ...documentOptions, collection: 'encryption_keys' },
)
export const EncryptionKey = mongoose.model<EncryptionKeyDocument>('EncryptionKey', schema)
export const encryptionKeyResource = defineResource('encryption_key', EncryptionKey, encryptionKeyStates, {
  of_platform: true,
})

/** Makes its record. Setup runs it. */
export async function ensureEncryptionKey(): Promise<void> {
  await EncryptionKey.updateOne({ _id: encryptionKeyId }, {}, { upsert: true })
}

/** Readies it for the acceptance of a rotation, in the same transaction: the operation is kept with the operator. */
export async function keepRotationIn(operatorTenantId: string): Promise<void> {
  await EncryptionKey.updateOne({ _id: encryptionKeyId }, { $set: { tenant_id: operatorTenantId } })
}

export async function getEncryptionKey(): Promise<EncryptionKeyDocument> {
  const found = await EncryptionKey.findById(encryptionKeyId).lean()
  if (!found) throw new Error('no encryption key: script/setup was not run')
  return found
}

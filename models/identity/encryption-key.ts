import mongoose, { Schema } from 'mongoose'
import { accepts, begin, type By } from '../acceptance.ts'
import { transaction } from '../database.ts'
import type { Accepted } from '../operations.ts'
import { defineResource, documentOptions, platformFields, type ResourceDocument } from '../resources.ts'
import { type StateOf, states } from '../states.ts'

// The encryption of secrets at rest as a resource. There is one, and its rotation is an operation like others. The keys
// themselves are data keys (models/data-keys.ts).

/** A rotation cannot be cancelled. After any outcome another rotation is allowed. */
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

/** Creates the record. Setup calls this. */
export async function ensureEncryptionKey(): Promise<void> {
  await EncryptionKey.updateOne({ _id: encryptionKeyId }, {}, { upsert: true })
}

/** Accepts a rotation. The operator's tenant keeps the operation. Throws as `begin`. */
export const acceptRotation = (by: By, id = encryptionKeyId): Promise<Accepted<EncryptionKeyDocument>> =>
  transaction(async () => {
    await EncryptionKey.updateOne({ _id: id }, { $set: { tenant_id: by.tenant_id } })
    return begin(by, encryptionKeyResource, id, 'rotate')
  }, id)

accepts(encryptionKeyResource, { verbs: { rotate: acceptRotation } })

export async function getEncryptionKey(): Promise<EncryptionKeyDocument> {
  const found = await EncryptionKey.findById(encryptionKeyId).lean()
  if (!found) throw new Error('no encryption key: script/setup was not run')
  return found
}

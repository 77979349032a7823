import mongoose, { Schema } from 'mongoose'
import { NotFound } from '../../lib/problem.ts'
import { newId } from '../../lib/ids.ts'
import { documentOptions, idField } from '../resources.ts'

export const suppressionReasons = ['bounce', 'complaint'] as const

/** Why an address is suppressed. */
export interface Cause {
  reason: (typeof suppressionReasons)[number]
  /** The mail service's term: `NoEmail`, `abuse`. */
  detail: string | null
}

/** An address that gets no more mail from any tenant: otherwise the mail service would stop serving all of them. */
export interface MailSuppressionDocument extends Cause {
  _id: string
  /** Lower case, as users' addresses are. */
  address: string
  created_at: Date
  /** When the address was last reported. */
  updated_at: Date
}

const schema = new Schema<MailSuppressionDocument>(
  {
    _id: idField,
    address: { type: String, required: true },
    reason: { type: String, enum: suppressionReasons, required: true },
    detail: { type: String, default: null },
  },
  { ...documentOptions, collection: 'mail_suppressions' },
)
schema.index({ address: 1 }, { unique: true })
schema.index({ created_at: -1, _id: -1 })
export const MailSuppression = mongoose.model<MailSuppressionDocument>('MailSuppression', schema)

/** Suppresses addresses. A suppressed address gets the newer cause. */
export async function suppress(addresses: string[], { reason, detail }: Cause): Promise<void> {
  for (const address of addresses) {
    await MailSuppression.updateOne(
      { address: address.toLowerCase() },
      { $set: { reason, detail }, $setOnInsert: { _id: newId() } },
      { upsert: true },
    )
  }
}

/** Whether the address is suppressed. Checked before each mail. */
export const isSuppressed = async (address: string): Promise<boolean> =>
  (await MailSuppression.exists({ address: address.toLowerCase() })) !== null

/** Lets mail go to the address again. Throws NotFound. */
export async function liftSuppression(id: string): Promise<void> {
  const { deletedCount } = await MailSuppression.deleteOne({ _id: id })
  if (!deletedCount) throw new NotFound('suppression')
}

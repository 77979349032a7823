import mongoose, { Schema } from 'mongoose'
import { isDuplicateKey, transaction } from '../database.ts'
import { schemaOptions } from '../schemas.ts'

/** A handled notification, remembered for as long as a copy of it would still be accepted. */
interface MailNotificationDocument {
  /** The message id that the sender gave. */
  _id: string
  expires_at: Date
}

const schema = new Schema<MailNotificationDocument>(
  { _id: { type: String, required: true }, expires_at: { type: Date, required: true } },
  { ...schemaOptions, collection: 'mail_notifications' },
)
schema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
const MailNotification = mongoose.model<MailNotificationDocument>('MailNotification', schema)

export const wasHandled = async (messageId: string): Promise<boolean> =>
  (await MailNotification.exists({ _id: messageId })) !== null

/**
 * Runs `work`, which must only change the database, and records the message in the same transaction. If the process is
 * killed before the commit, nothing has happened, and the sender repeats the message. Of concurrent calls one runs
 * `work`. Returns whether this one did.
 */
export async function handleOnce(
  messageId: string,
  rememberedUntil: Date,
  work: () => Promise<void>,
): Promise<boolean> {
  try {
    await transaction(async () => {
      await MailNotification.create([{ _id: messageId, expires_at: rememberedUntil }])
      await work()
    })
    return true
  } catch (error) {
    if (isDuplicateKey(error) && '_id' in error.keyPattern) return false
    throw error
  }
}

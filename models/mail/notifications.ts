import mongoose, { Schema } from 'mongoose'
import { isDuplicateKey, transaction } from '../database.ts'
import { schemaOptions } from '../schemas.ts'

/** A notification that was acted upon, remembered for as long as its age would still let it in. */
interface MailNotificationDocument {
  /** The sender's id of the message. */
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
 * Runs `work`, which only changes the database, and remembers the message in the same transaction: who is killed
 * before its end has done nothing, and the message comes again. Of many at once one does it. Says whether this one did.
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

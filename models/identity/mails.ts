import mongoose, { Schema } from 'mongoose'
import { sealSecret } from '../secrets.ts'
import { idField } from '../resources.ts'
import { newId } from '../../lib/ids.ts'

/** What is to be said to a person. */
export interface Mail {
  to: string
  subject: string
  text: string
}

/** Mail that waits to go out. Its text is sealed, since it may carry a link that opens an account. */
export interface MailDocument {
  _id: string
  to: string
  text_sealed: string
  state: 'waiting' | 'sent' | 'suppressed' | 'failed'
  tries: number
  /** Not before this moment; moved on by each try, so that two workers do not send it at once. */
  due_at: Date
  created_at: Date
}

const schema = new Schema<MailDocument>(
  {
    _id: idField,
    to: { type: String, required: true },
    text_sealed: { type: String, required: true },
    state: { type: String, required: true, default: 'waiting' },
    tries: { type: Number, default: 0 },
    due_at: { type: Date, required: true },
    created_at: { type: Date, required: true },
  },
  { versionKey: false, id: false, collection: 'mails' },
)
schema.index({ due_at: 1 }, { partialFilterExpression: { state: 'waiting' } })
export const MailRecord = mongoose.model<MailDocument>('Mail', schema)

/** Accepts a mail. Inside a transaction it goes out only if that commits; a worker sends it soon after. */
export async function queueMail({ to, subject, text }: Mail): Promise<void> {
  const _id = newId()
  const now = new Date()
  await new MailRecord({
    _id,
    to,
    text_sealed: sealSecret({ subject, text }, _id),
    due_at: now,
    created_at: now,
  }).save()
}

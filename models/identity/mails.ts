import mongoose, { Schema } from 'mongoose'
import { sealedField } from '../sealed-fields.ts'
import { sealSecret, unsealSecret } from '../secrets.ts'
import { idField } from '../resources.ts'
import { newId } from '../../lib/ids.ts'
import { schemaOptions } from '../schemas.ts'

/** A mail to a user. */
export interface Mail {
  to: string
  subject: string
  text: string
}

/** A queued mail. Its text is sealed, since it may contain a link that opens an account. */
export interface MailDocument {
  _id: string
  to: string
  text_sealed: string
  /** The tenant of the event that it tells. Absent: it is of an account. */
  event_of?: string
  /** `suppressed`: the address gets no more mail (models/mail/suppressions.ts). */
  state: 'waiting' | 'sent' | 'failed' | 'suppressed'
  tries: number
  /** The earliest time to send. Each try moves it on, so that no two workers send the mail at once. */
  due_at: Date
  /** When MongoDB deletes it: a week after it was settled. */
  expires_at: Date | null
  created_at: Date
}

const schema = new Schema<MailDocument>(
  {
    _id: idField,
    to: { type: String, required: true },
    text_sealed: { type: String, required: true },
    event_of: String,
    state: { type: String, required: true, default: 'waiting' },
    tries: { type: Number, default: 0 },
    due_at: { type: Date, required: true },
    expires_at: { type: Date, default: null },
    created_at: { type: Date, required: true },
  },
  { ...schemaOptions, collection: 'mails' },
)
schema.index({ due_at: 1 }, { partialFilterExpression: { state: 'waiting' } })
schema.index({ event_of: 1, due_at: 1 }, { partialFilterExpression: { state: 'waiting' } })
schema.index({ event_of: 1, created_at: 1 }, { partialFilterExpression: { event_of: { $exists: true } } })
schema.index({ expires_at: 1 }, { expireAfterSeconds: 0 })
export const MailRecord = mongoose.model<MailDocument>('Mail', schema)
sealedField(MailRecord, 'text_sealed')

/** Queues a mail, which a worker sends soon. Inside a transaction it is sent only if that commits. */
export const queueMail = (mail: Mail): Promise<void> => queue(mail)

/**
 * Mails of a tenant's events in an hour. An incident of 50 applications can be told to two people; a tenant that asks for more
 * cannot use up the platform's quota of its SMTP server, which has some ten thousand a day.
 */
export const eventMailsPerHour = 100
const hourMs = 3_600_000

/**
 * Queues a mail that tells an event of the tenant. False: the tenant has had its mails of this hour. Workers that queue at
 * the same moment may exceed the limit by a few.
 */
export async function queueEventMail(tenant_id: string, mail: Mail): Promise<boolean> {
  const lately = { event_of: tenant_id, created_at: { $gt: new Date(Date.now() - hourMs) } }
  if ((await MailRecord.countDocuments(lately)) >= eventMailsPerHour) return false
  await queue(mail, { event_of: tenant_id })
  return true
}

async function queue({ to, subject, text }: Mail, of: Pick<MailDocument, 'event_of'> = {}): Promise<void> {
  const _id = newId()
  const now = new Date()
  await new MailRecord({
    _id,
    to,
    text_sealed: await sealSecret({ subject, text }, _id),
    ...of,
    due_at: now,
    created_at: now,
  }).save()
}

/** A mail that one worker has claimed. */
export interface ClaimedMail extends Mail {
  id: string
  /** The number of tries, this one included. */
  tries: number
  /** Whether the mail is retried if this try fails. */
  triesLeft: boolean
}

// After 10 s, 20 s, 40 s, …: ten tries take an hour and a half.
const firstPauseMs = 10_000
const mostTries = 10
const keptMs = 7 * 86_400_000

/**
 * Claims the mail that has waited longest, until it is due again: of an account if there is one, so that no events delay the
 * invitations and password resets of all tenants. Null if none is due.
 */
export const claimDueMail = async (): Promise<ClaimedMail | null> =>
  (await claim({ event_of: { $exists: false } })) ?? (await claim())

async function claim(which: object = {}): Promise<ClaimedMail | null> {
  const now = new Date()
  const pause = { $multiply: [firstPauseMs, { $pow: [2, '$tries'] }] }
  const mail = await MailRecord.findOneAndUpdate(
    { ...which, state: 'waiting', due_at: { $lte: now } },
    [{ $set: { tries: { $add: ['$tries', 1] }, due_at: { $add: [now, pause] } } }],
    { sort: { due_at: 1 }, returnDocument: 'after', updatePipeline: true },
  ).lean()
  if (!mail) return null
  const { _id: id, to, tries, text_sealed } = mail
  const { subject, text } = await unsealSecret<{ subject: string; text: string }>(text_sealed, id)
  return { id, to, subject, text, tries, triesLeft: tries < mostTries }
}

/** Records the final state of a mail, and deletes its text. */
export async function settleMail(id: string, state: 'sent' | 'failed' | 'suppressed'): Promise<void> {
  const expires_at = new Date(Date.now() + keptMs)
  await MailRecord.updateOne({ _id: id }, { $set: { state, text_sealed: '-', expires_at } })
}

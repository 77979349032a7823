import { z } from 'zod'
import type { Cause } from '../../models/mail/suppressions.ts'
import { Email } from '../fields.ts'

// What comes in: an SNS message, and in its text what SES says of a mail.

// Without line breaks, which part the fields of what is signed: only `Message`, the first of them, may have some.
const Line = z
  .string()
  .max(2048)
  .regex(/^[^\r\n]*$/)

const common = {
  MessageId: Line.min(1),
  TopicArn: Line,
  Timestamp: z.iso.datetime(),
  Message: z.string(),
  SignatureVersion: z.enum(['1', '2']),
  Signature: z.base64().max(2048),
  SigningCertURL: Line,
}
const confirmation = { ...common, SubscribeURL: Line, Token: Line }

/** As SNS posts it. Fields that are not known here are passed over: SNS may add some. */
export const SnsMessage = z.discriminatedUnion('Type', [
  z.object({ Type: z.literal('Notification'), ...common, Subject: Line.optional() }),
  z.object({ Type: z.literal('SubscriptionConfirmation'), ...confirmation }),
  z.object({ Type: z.literal('UnsubscribeConfirmation'), ...confirmation }),
])
export type SnsMessage = z.output<typeof SnsMessage>
export type SubscriptionConfirmation = Extract<SnsMessage, { Type: 'SubscriptionConfirmation' }>

const Recipients = z.array(z.object({ emailAddress: z.string() }))

// `notificationType` in notifications of an identity, `eventType` in those of a configuration set.
const SesEvent = z.object({
  notificationType: z.string().optional(),
  eventType: z.string().optional(),
  bounce: z
    .object({
      bounceType: z.string(),
      bounceSubType: z.string().optional(),
      bouncedRecipients: Recipients,
    })
    .optional(),
  complaint: z
    .object({ complaintFeedbackType: z.string().nullish(), complainedRecipients: Recipients })
    .optional(),
})

/** The addresses that are to get no more mail by this text of SES’s, and why; null when it asks for nothing. */
export function suppressionsIn(text: string): { addresses: string[]; cause: Cause } | null {
  const parsed = SesEvent.safeParse(parseJson(text))
  if (!parsed.success) return null
  const { eventType, notificationType, bounce, complaint } = parsed.data
  const type = eventType ?? notificationType
  if (type === 'Bounce' && bounce?.bounceType === 'Permanent') {
    return found('bounce', bounce.bounceSubType, bounce.bouncedRecipients)
  }
  // `not-spam` takes a complaint back.
  if (type === 'Complaint' && complaint && complaint.complaintFeedbackType !== 'not-spam') {
    return found('complaint', complaint.complaintFeedbackType, complaint.complainedRecipients)
  }
  return null
}

function found(
  reason: Cause['reason'],
  detail: string | null | undefined,
  recipients: z.output<typeof Recipients>,
) {
  const addresses = recipients.map(({ emailAddress }) => bareAddress(emailAddress))
  const valid = [...new Set(addresses)].filter((address) => Email.safeParse(address).success)
  return valid.length ? { addresses: valid, cause: { reason, detail: detail?.slice(0, 100) ?? null } } : null
}

/** `Ada <Ada@example.com>` → `ada@example.com` */
const bareAddress = (given: string): string =>
  (/<([^<>]*)>\s*$/.exec(given)?.[1] ?? given).trim().toLowerCase()

function parseJson(text: string): unknown {
  try {
    return JSON.parse(text)
  } catch {
    return undefined
  }
}

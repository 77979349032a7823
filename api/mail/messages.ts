import { z } from 'zod'
import type { Cause } from '../../models/mail/suppressions.ts'
import { Email } from '../fields.ts'

// The incoming messages: an SNS message whose text is an SES event.

// No line breaks: they separate the fields of the signed text. Only `Message`, its first field, may have some.
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

/** A message as SNS posts it. Unknown fields are ignored: SNS may add some. */
export const SnsMessage = z.discriminatedUnion('Type', [
  z.object({ Type: z.literal('Notification'), ...common, Subject: Line.optional() }),
  z.object({ Type: z.literal('SubscriptionConfirmation'), ...confirmation }),
  z.object({ Type: z.literal('UnsubscribeConfirmation'), ...confirmation }),
])
export type SnsMessage = z.output<typeof SnsMessage>
export type SubscriptionConfirmation = Extract<SnsMessage, { Type: 'SubscriptionConfirmation' }>

const Recipients = z.array(z.object({ emailAddress: z.string() }))

// An identity's notifications have `notificationType`, those of a configuration set `eventType`.
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

/** The addresses to suppress because of this SES event, and the cause; null if there are none. */
export function suppressionsIn(text: string): { addresses: string[]; cause: Cause } | null {
  const parsed = SesEvent.safeParse(parseJson(text))
  if (!parsed.success) return null
  const { eventType, notificationType, bounce, complaint } = parsed.data
  const type = eventType ?? notificationType
  if (type === 'Bounce' && bounce?.bounceType === 'Permanent') {
    return found('bounce', bounce.bounceSubType, bounce.bouncedRecipients)
  }
  // `not-spam` withdraws a complaint.
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

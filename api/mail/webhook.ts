import { z } from 'zod'
import { NotFound } from '../../lib/problem.ts'
import { handleOnce, wasHandled } from '../../models/mail/notifications.ts'
import { suppress } from '../../models/mail/suppressions.ts'
import { anybody, type Operation, operation } from '../operation.ts'
import { SnsMessage, suppressionsIn } from './messages.ts'
import { goodUntil, type MailTopic } from './topic.ts'

const Result = z
  .strictObject({
    ok: z.boolean(),
    confirmed: z.boolean().describe('Whether the topic’s subscription was confirmed'),
    ignored: z.boolean().describe('Whether the message needs no action, or was received before'),
    recorded: z.int().describe('Number of addresses that were suppressed'),
  })
  .meta({ id: 'MailNotificationResult' })

const done: z.output<typeof Result> = { ok: true, confirmed: false, ignored: false, recorded: 0 }
const ignored = { ...done, ignored: true }

/** `mailTopic` is the only accepted topic; without one, the webhook answers 404. */
export const makeMailWebhook = ({ mailTopic }: { mailTopic?: MailTopic | null }): Operation[] => [
  operation({
    method: 'POST',
    path: '/api/v1/mailsvc/webhook',
    permission: anybody('each message is signed and pinned to the configured topic'),
    summary: 'Receive a mail delivery notification; bounces and complaints suppress the address',
    body: SnsMessage,
    media_types: ['text/plain'], // SNS sends this
    responses: { 200: Result },
    refuses: [403, 404],
    attempts_per_min: 600, // SNS sends all bounces from few addresses
    handle: async ({ body: message }) => {
      // 404, not 503: without a topic, SNS must not retry.
      if (!mailTopic) throw new NotFound('mail topic')
      await mailTopic.check(message)

      if (message.Type === 'SubscriptionConfirmation') {
        if (await wasHandled(message.MessageId)) return ignored
        await mailTopic.confirm(message)
        await handleOnce(message.MessageId, goodUntil(message), async () => {})
        return { ...done, confirmed: true }
      }

      const found = message.Type === 'Notification' ? suppressionsIn(message.Message) : null
      if (!found) return ignored
      const isFirst = await handleOnce(message.MessageId, goodUntil(message), () =>
        suppress(found.addresses, found.cause),
      )
      return isFirst ? { ...done, recorded: found.addresses.length } : ignored
    },
  }),
]

import type { Logger } from '../../lib/log.ts'
import { NotificationRefused } from '../../lib/problem.ts'
import type { SnsMessage, SubscriptionConfirmation } from './messages.ts'
import { makePinnedHost } from './pinned-host.ts'
import { makeSignatureCheck } from './signature.ts'

export interface TopicSettings {
  KEELSON_MAIL_TOPIC_ARN?: string | undefined
  KEELSON_MAIL_TOPIC_HOST?: string | undefined
  KEELSON_MAIL_TOPIC_CA_FILE?: string | undefined
}

/** The only topic whose messages are accepted. */
export interface MailTopic {
  /** Throws NotificationRefused unless this topic sent the message within the last hour. Throws Unavailable. */
  check(message: SnsMessage): Promise<void>
  /** Confirms a checked subscription. Throws NotificationRefused and Unavailable. */
  confirm(message: SubscriptionConfirmation): Promise<void>
}

const hourMs = 3_600_000
// Allows for clock differences.
const aheadMs = 5 * 60_000

/** Until when to remember a message: after that it is too old to be accepted again. SNS retries for an hour at most. */
export const goodUntil = ({ Timestamp }: SnsMessage): Date => new Date(Date.parse(Timestamp) + hourMs)

/** Null if no topic is set. */
export function makeMailTopic(settings: TopicSettings, log: Logger): MailTopic | null {
  const { KEELSON_MAIL_TOPIC_ARN: arn, KEELSON_MAIL_TOPIC_CA_FILE: caFile } = settings
  if (arn === undefined) return null
  const host = makePinnedHost(settings.KEELSON_MAIL_TOPIC_HOST ?? hostOf(arn), caFile)
  const isSigned = makeSignatureCheck(host)

  /** Logs the reason for operators; the sender does not get it. */
  function refuse(reason: string): never {
    log.info({ reason }, 'mail notification refused')
    throw new NotificationRefused()
  }

  return {
    async check(message) {
      if (message.TopicArn !== arn) refuse('it is from another topic')
      const now = Date.now()
      if (goodUntil(message).getTime() <= now) refuse('it is too old')
      if (Date.parse(message.Timestamp) > now + aheadMs) refuse('its time is in the future')
      if (!(await isSigned(message))) refuse('it is not signed by a certificate of the pinned host')
    },
    async confirm({ SubscribeURL }) {
      const url = host.urlOf(SubscribeURL)
      if (!url) refuse('its confirmation leads to another host')
      if ((await host.read(url)) === null) refuse('the topic does not accept the confirmation')
      log.info('subscription of the mail topic confirmed')
    },
  }
}

/** `arn:aws:sns:eu-west-1:…` → `sns.eu-west-1.amazonaws.com` */
export function hostOf(arn: string): string {
  const [, partition, , region] = arn.split(':')
  return `sns.${region}.amazonaws.com${partition === 'aws-cn' ? '.cn' : ''}`
}

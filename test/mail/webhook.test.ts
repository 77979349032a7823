import { randomBytes } from 'node:crypto'
import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { MailRecord } from '../../models/identity/mails.ts'
import { handleOnce } from '../../models/mail/notifications.ts'
import { isSuppressed, MailSuppression, suppress } from '../../models/mail/suppressions.ts'
import { eventually } from '../support/eventually.ts'
import { replicas } from '../support/api-clients.ts'
import { mailsTo } from '../support/mailbox.ts'
import { platform } from '../support/platform.ts'
import { startOwnApi } from '../support/own-api.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { mailTopic } from '../support/stack.ts'
import { bounce, complaint, confirmation, notification, post, signed } from '../support/topic.ts'
import {
  topic,
  strangers,
  someone,
  recorded,
  ignored,
  confirmed,
  unavailable,
  expectRefusal,
  minutesAgo,
  visitsOf,
} from '../support/topic-tests.ts'

let tenant: TestTenant
const [, other] = replicas()
beforeAll(async () => {
  tenant = await makeTenant()
})

const confirmPath = () => `/?Action=ConfirmSubscription&TopicArn=${mailTopic.arn}&Token=${newId()}`

const invite = async (email: string): Promise<void> => {
  const { status } = await tenant.owner.ask('POST', '/api/v1/users', {
    email,
    name: 'Ada',
    roles: ['viewer'],
  })
  expect(status).toBe(201)
}

describe('a report of the topic', () => {
  test.each(['1', '2'] as const)('with a signature of version %s is recorded', async (version) => {
    const address = someone()
    const answer = await post(signed(notification(bounce([address])), topic.signer, version))
    expect(answer).toMatchObject(recorded(1))
    expect(await isSuppressed(address)).toBe(true)
  })

  test('as JSON by its content type is accepted too', async () => {
    const message = signed(notification(bounce([someone()])), topic.signer)
    expect(await post(message, '', { 'content-type': 'application/json' })).toMatchObject(recorded(1))
    const answer = await post(message, '', { 'content-type': 'application/xml' })
    expect(answer).toMatchObject({ status: 415, body: { code: 'unsupported_media_type' } })
  })

  test('of a permanent bounce stops the next invitation, whose text is deleted', async () => {
    const [gone, there] = [someone(), someone()]
    const upper = `Ada <${gone.toUpperCase()}>`
    expect(await post(signed(notification(bounce([upper])), topic.signer))).toMatchObject(recorded(1))
    await invite(gone)
    await invite(there)
    expect(await mailsTo(there)).toHaveLength(1)
    expect(await mailsTo(gone)).toEqual([])
    const record = await MailRecord.findOne({ to: gone }).lean()
    expect(record).toMatchObject({ state: 'suppressed', text_sealed: '-' })
  })

  test('of a complaint records all addresses and the kind of complaint', async () => {
    const addresses = [someone(), someone()]
    const message = notification(complaint([...addresses, addresses[0] ?? '']))
    expect(await post(signed(message, topic.signer))).toMatchObject(recorded(2))
    for (const address of addresses)
      expect(await MailSuppression.findOne({ address }).lean()).toMatchObject({
        reason: 'complaint',
        detail: 'abuse',
      })
    await invite(addresses[1] ?? '')
    expect(await mailsTo(addresses[1] ?? '')).toEqual([])
  })

  test('that is newer updates the record of an address', async () => {
    const address = someone()
    await post(signed(notification(bounce([address])), topic.signer))
    await post(signed(notification(complaint([address])), topic.signer), other)
    const records = await MailSuppression.find({ address }).lean()
    expect(records).toMatchObject([{ reason: 'complaint' }])
  })

  test.each([
    [
      'a transient bounce',
      (to: string) => bounce([to], { bounceType: 'Transient', bounceSubType: 'MailboxFull' }),
    ],
    ['a delivery', (to: string) => ({ notificationType: 'Delivery', delivery: { recipients: [to] } })],
    ['a text that is no event', () => 'Successfully validated SNS topic for Amazon SES event publishing.'],
  ])('of %s is ignored, and mail still goes there', async (_, event) => {
    const to = someone()
    expect(await post(signed(notification(event(to)), topic.signer))).toMatchObject(ignored)
    await invite(to)
    expect(await mailsTo(to)).toHaveLength(1)
  })
})

describe('a message that comes again', () => {
  test('is ignored by every replica, also if its effect was undone', async () => {
    const address = someone()
    const message = signed(notification(bounce([address])), topic.signer)
    expect(await post(message)).toMatchObject(recorded(1))
    await MailSuppression.deleteOne({ address })
    for (const replica of replicas()) expect(await post(message, replica)).toMatchObject(ignored)
    expect(await isSuppressed(address)).toBe(false)
  })

  test('in parallel is recorded once', async () => {
    const message = signed(notification(bounce([someone()])), topic.signer)
    const answers = await Promise.all(Array.from({ length: 20 }, (_, i) => post(message, replicas()[i % 2])))
    expect(answers.map(({ status }) => status)).toEqual(answers.map(() => 200))
    expect(answers.filter(({ body }) => body['recorded'] === 1)).toHaveLength(1)
    expect(answers.filter(({ body }) => body['ignored'])).toHaveLength(19)
  })

  test('is recorded if recording it had failed before: both writes are one transaction', async () => {
    const [address, id] = [someone(), newId()]
    const until = new Date(Date.now() + 60_000)
    const cause = { reason: 'bounce', detail: null } as const
    const killed = handleOnce(id, until, async () => {
      await suppress([address], cause)
      throw new Error('killed')
    })
    await expect(killed).rejects.toThrow('killed')
    expect(await isSuppressed(address)).toBe(false)
    expect(await handleOnce(id, until, () => suppress([address], cause))).toBe(true)
    expect(await isSuppressed(address)).toBe(true)
  })
})

test('no message is lost if the API is killed while many arrive and they come again', async () => {
  const addresses = Array.from({ length: 60 }, someone)
  const messages = addresses.map((address) => signed(notification(bounce([address])), topic.signer))
  const suppressed = () => MailSuppression.countDocuments({ address: { $in: addresses } })
  await post(messages[0] ?? {}) // caches the certificate, so that the following requests only record
  const sending = Promise.allSettled(messages.map((message) => post(message)))
  await eventually(async () => (await suppressed()) > 5)
  await platform.kill('api')
  await sending
  const answers = await Promise.all(messages.map((message) => post(message, other)))
  expect(answers.filter(({ body }) => !(body['ignored'] || body['recorded'] === 1))).toEqual([])
  expect(await suppressed()).toBe(addresses.length)
  await platform.start('api')
})

describe('the webhook refuses a message that was changed', () => {
  const changed: Record<string, string> = {
    Message: JSON.stringify(bounce(['victim@example.com'])),
    MessageId: newId(),
    Subject: 'Another',
    Timestamp: new Date(Date.now() - 1000).toISOString(),
    TopicArn: mailTopic.arn.replace('mail', 'other'),
    Token: 'another',
    SubscribeURL: `https://localhost:${mailTopic.port}/another`,
    SignatureVersion: '1',
    Signature: randomBytes(256).toString('base64'),
  }
  const cases = (['Notification', 'SubscriptionConfirmation'] as const).flatMap((type) => {
    const fields = type === 'Notification' ? ['Subject'] : ['Token', 'SubscribeURL']
    const all = ['Message', 'MessageId', 'Timestamp', 'TopicArn', 'SignatureVersion', 'Signature', ...fields]
    return all.flatMap((field) => (['1', '2'] as const).map((version) => [type, field, version] as const))
  })

  test.each(cases)('%s: its %s, signed by version %s', async (type, field, version) => {
    const url = topic.host.show(`/confirm-${newId()}`, 'confirmed')
    const message = type === 'Notification' ? notification(bounce([someone()])) : confirmation(url)
    const good = signed(message, topic.signer, version)
    const value = field === 'SignatureVersion' ? (version === '1' ? '2' : '1') : (changed[field] ?? '')
    const before = topic.host.visits.length
    expectRefusal(await post({ ...good, [field]: value }))
    expect(topic.host.visits.slice(before).filter((path) => !path.endsWith('.pem'))).toEqual([])
    expect(await post(good)).toMatchObject({ status: 200 })
  })

  test('in its type', async () => {
    const url = topic.host.show(`/confirm-${newId()}`, 'confirmed')
    const good = signed(confirmation(url), topic.signer)
    expectRefusal(await post({ ...good, Type: 'UnsubscribeConfirmation' }))
    expectRefusal(await post({ ...good, Type: 'Notification' }))
  })

  test('by a subject removed or added', async () => {
    const { Subject: _, ...without } = notification(bounce([someone()]))
    const { Subject: __, ...stripped } = signed(notification(bounce([someone()])), topic.signer)
    expectRefusal(await post(stripped))
    const good = signed(without, topic.signer)
    expectRefusal(await post({ ...good, Subject: 'Added' }))
    expect(await post(good)).toMatchObject(recorded(1))
  })

  test('by another message’s signature', async () => {
    const forger = await topic.authority.issue(['sns.amazonaws.com'])
    const message = notification(bounce([someone()]))
    expectRefusal(await post(signed(message, { ...topic.signer, key: forger.key })))
    expectRefusal(await post({ ...signed(message, topic.signer), Signature: '' }))
  })
})

describe('the webhook refuses a message', () => {
  test.each([
    ['of another topic', () => ({ TopicArn: mailTopic.arn.replace('mail', 'other') })],
    [
      'of the same topic in another region',
      () => ({ TopicArn: mailTopic.arn.replace('eu-west-1', 'eu-west-2') }),
    ],
    ['that is older than an hour', () => ({ Timestamp: minutesAgo(61) })],
    ['of the future', () => ({ Timestamp: minutesAgo(-10) })],
  ])('%s, although its signature is valid', async (_, over) => {
    const address = someone()
    expectRefusal(await post(signed(notification(bounce([address]), over()), topic.signer)))
    expect(await isSuppressed(address)).toBe(false)
  })

  test('that is old, but not one that is almost an hour old', async () => {
    const message = notification(bounce([someone()]), { Timestamp: minutesAgo(58) })
    expect(await post(signed(message, topic.signer))).toMatchObject(recorded(1))
  })

  test('without the fields that every message has: 422', async () => {
    const { MessageId: _, ...message } = signed(notification(bounce([someone()])), topic.signer)
    expect(await post(message)).toMatchObject({ status: 422, body: { code: 'invalid_input' } })
  })
})

describe('a subscription', () => {
  test.each(['1', '2'] as const)('is confirmed once, at the pinned host (version %s)', async (version) => {
    const url = topic.host.show(confirmPath(), '<ConfirmSubscriptionResponse/>')
    const message = signed(confirmation(url), topic.signer, version)
    expect(await post(message)).toMatchObject(confirmed)
    for (const replica of replicas()) expect(await post(message, replica)).toMatchObject(ignored)
    expect(visitsOf(url)).toBe(1)
  })

  test('is confirmed nowhere else, although the signature is valid', async () => {
    const urls = [
      ...strangers.map((stranger) => stranger.show(confirmPath(), 'confirmed')),
      `http://localhost:${mailTopic.port}/`,
      `https://user@localhost:${mailTopic.port}/`,
      'file:///etc/passwd',
      'not a URL',
    ]
    for (const url of urls) expectRefusal(await post(signed(confirmation(url), topic.signer)))
  })

  test('is not confirmed by a redirect', async () => {
    const location = strangers[0]?.show(confirmPath(), 'confirmed') ?? ''
    const url = topic.host.show(confirmPath(), (page) => void page.writeHead(302, { location }).end())
    expectRefusal(await post(signed(confirmation(url), topic.signer)))
    expect(visitsOf(url)).toBe(1)
  })

  test('is confirmed when the message comes again, if it failed before', async () => {
    const path = confirmPath()
    const url = topic.host.show(path, (page) => void page.writeHead(503).end())
    const message = signed(confirmation(url), topic.signer)
    expect(await post(message)).toMatchObject(unavailable)
    topic.host.show(path, 'confirmed')
    expect(await post(message)).toMatchObject(confirmed)
  })

  test('that ended is not confirmed again', async () => {
    const url = topic.host.show(confirmPath(), 'confirmed')
    const message = confirmation(url, { Type: 'UnsubscribeConfirmation' })
    expect(await post(signed(message, topic.signer))).toMatchObject(ignored)
    expect(visitsOf(url)).toBe(0)
  })
})

test('the webhook limits requests by address', async () => {
  for (const replica of replicas()) {
    const { headers } = await post({}, replica)
    expect(headers.get('ratelimit-limit')).toBe('600')
  }
})

test('an API without a topic refuses every message', async () => {
  const api = await startOwnApi({})
  try {
    const address = someone()
    const answer = await post(signed(notification(bounce([address])), topic.signer), api.url)
    expect(answer).toMatchObject({ status: 404, body: { code: 'not_found' } })
    expect(await isSuppressed(address)).toBe(false)
  } finally {
    await api.stop()
  }
})

test('the webhook logs refusals with their reasons, and never with an address', async () => {
  const address = someone()
  const message = notification(bounce([address]), { TopicArn: mailTopic.arn.replace('mail', 'other') })
  const { headers } = await post(signed(message, topic.signer))
  const request = headers.get('x-request-id') ?? ''
  const line = await eventually(() =>
    platform
      .logs('api')
      .split('\n')
      .find((text) => text.includes(request)),
  )
  expect(JSON.parse(line)).toMatchObject({ reason: 'it is from another topic' })
  expect(platform.logs('api')).not.toContain(address)
})

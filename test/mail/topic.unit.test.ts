import { describe, expect, test } from '@jest/globals'
import { signedText } from '../../api/mail/signature.ts'
import { SnsMessage, suppressionsIn } from '../../api/mail/messages.ts'
import { hostOf } from '../../api/mail/topic.ts'

// The signed text and the trusted hosts, as in the SNS Developer Guide; events as in SES's examples.

const common = {
  TopicArn: 'arn:aws:sns:us-east-2:123456789012:s4-MySNSTopic-1G1WEFCOXTC0P',
  SignatureVersion: '1',
  Signature: 'AAAA',
  SigningCertURL: 'https://sns.us-east-2.amazonaws.com/SimpleNotificationService-0.pem',
}

test('the signed text of a notification follows the guide', () => {
  const message = {
    Type: 'Notification',
    MessageId: '4d4dc071-ddbf-465d-bba8-08f81c89da64',
    Subject: 'My subject',
    Message: 'My Test Message',
    Timestamp: '2019-01-31T04:37:04.321Z',
    UnsubscribeURL: 'https://sns.us-east-2.amazonaws.com/?Action=Unsubscribe',
    MessageAttributes: { more: { Type: 'String', Value: 'x' } },
    ...common,
  }
  const text = `Message
My Test Message
MessageId
4d4dc071-ddbf-465d-bba8-08f81c89da64
Subject
My subject
Timestamp
2019-01-31T04:37:04.321Z
TopicArn
arn:aws:sns:us-east-2:123456789012:s4-MySNSTopic-1G1WEFCOXTC0P
Type
Notification
`
  expect(signedText(SnsMessage.parse(message))).toBe(text)
  const { Subject: _, ...without } = message
  expect(signedText(SnsMessage.parse(without))).toBe(text.replace('Subject\nMy subject\n', ''))
})

test.each(['SubscriptionConfirmation', 'UnsubscribeConfirmation'])(
  'the signed text of a %s follows the guide',
  (Type) => {
    const message = {
      Type,
      MessageId: '3d891288-136d-417f-bc05-901c108273ee',
      Token: '233641',
      Message: 'You have chosen to subscribe to the topic.\nTo confirm, visit the SubscribeURL.',
      SubscribeURL: 'https://sns.us-east-2.amazonaws.com/?Action=ConfirmSubscription',
      Timestamp: '2019-01-31T19:25:13.719Z',
      ...common,
    }
    expect(signedText(SnsMessage.parse(message))).toBe(`Message
You have chosen to subscribe to the topic.
To confirm, visit the SubscribeURL.
MessageId
3d891288-136d-417f-bc05-901c108273ee
SubscribeURL
https://sns.us-east-2.amazonaws.com/?Action=ConfirmSubscription
Timestamp
2019-01-31T19:25:13.719Z
Token
233641
TopicArn
arn:aws:sns:us-east-2:123456789012:s4-MySNSTopic-1G1WEFCOXTC0P
Type
${Type}
`)
  },
)

test('a line break in a field of the signed text is refused: it could forge other fields', () => {
  const message = {
    Type: 'Notification',
    MessageId: '1',
    Message: 'x',
    Timestamp: '2019-01-31T04:37:04.321Z',
  }
  expect(SnsMessage.safeParse({ ...message, ...common }).success).toBe(true)
  for (const field of ['MessageId', 'Subject', 'TopicArn', 'SigningCertURL'])
    expect(SnsMessage.safeParse({ ...message, ...common, [field]: 'a\nType' }).success).toBe(false)
})

test('the trusted host is that of the topic’s region', () => {
  expect(hostOf('arn:aws:sns:eu-west-1:123456789012:mail')).toBe('sns.eu-west-1.amazonaws.com')
  expect(hostOf('arn:aws-us-gov:sns:us-gov-west-1:123456789012:mail')).toBe('sns.us-gov-west-1.amazonaws.com')
  expect(hostOf('arn:aws-cn:sns:cn-north-1:123456789012:mail')).toBe('sns.cn-north-1.amazonaws.com.cn')
})

const read = (event: unknown) => suppressionsIn(JSON.stringify(event))

describe('an event suppresses', () => {
  const bouncedRecipients = [
    { emailAddress: 'Jane <Jane@Example.com>' },
    { emailAddress: 'jane@example.com' },
  ]

  test.each(['notificationType', 'eventType'])('the address of a permanent bounce, by %s', (type) => {
    const bounce = { bounceType: 'Permanent', bounceSubType: 'General', bouncedRecipients }
    expect(read({ [type]: 'Bounce', bounce })).toEqual({
      addresses: ['jane@example.com'],
      cause: { reason: 'bounce', detail: 'General' },
    })
  })

  test.each(['notificationType', 'eventType'])('the addresses of a complaint, by %s', (type) => {
    expect(read({ [type]: 'Complaint', complaint: { complainedRecipients: bouncedRecipients } })).toEqual({
      addresses: ['jane@example.com'],
      cause: { reason: 'complaint', detail: null },
    })
  })

  test.each([
    ['a transient bounce', { eventType: 'Bounce', bounce: { bounceType: 'Transient', bouncedRecipients } }],
    [
      'an undetermined one',
      { eventType: 'Bounce', bounce: { bounceType: 'Undetermined', bouncedRecipients } },
    ],
    ['a delivery', { eventType: 'Delivery', delivery: { recipients: ['jane@example.com'] } }],
    ['a bounce without its object', { eventType: 'Bounce' }],
    [
      'a delivery with a bounce in it',
      { eventType: 'Delivery', bounce: { bounceType: 'Permanent', bouncedRecipients } },
    ],
    [
      'a complaint taken back',
      {
        eventType: 'Complaint',
        complaint: { complaintFeedbackType: 'not-spam', complainedRecipients: bouncedRecipients },
      },
    ],
    [
      'what is no address',
      {
        eventType: 'Bounce',
        bounce: { bounceType: 'Permanent', bouncedRecipients: [{ emailAddress: 'jane' }] },
      },
    ],
    ['null', null],
  ])('nothing: %s', (_, event) => expect(read(event)).toBeNull())

  test('nothing: a text that is no JSON', () =>
    expect(suppressionsIn('Successfully validated SNS topic')).toBeNull())
})

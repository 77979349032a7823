import { randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { createServer, type IncomingMessage } from 'node:http'
import { request } from 'node:https'
import type { AddressInfo } from 'node:net'
import { text } from 'node:stream/consumers'
import type { Json } from './client.ts'
import { confirmation, type Message, notification, signed, type TestTopic } from './topic.ts'

// Amazon SNS and SES of one account, which cost money: a server that speaks their query protocol with the `aws` command, and has
// a topic's messages delivered by https, as SNS does.

const [region, account] = ['eu-west-1', '123456789012']
const namespaces = {
  sns: 'http://sns.amazonaws.com/doc/2010-03-31/',
  ses: 'http://ses.amazonaws.com/doc/2010-12-01/',
}

interface Topic {
  SignatureVersion: '1' | '2'
  subscriptions: { endpoint: string; confirmed: boolean }[]
}

export interface Aws {
  /** How the `aws` command finds it. */
  env: Record<string, string>
  /** Whether all subscriptions of a topic are confirmed, and there is one. */
  isConfirmed(arn: string): boolean
  /** Reports on mail of an identity, as SES does: to the topic that is set for this type of event. Returns the answers. */
  report(identity: string, type: 'Bounce' | 'Complaint', event: Json): Promise<Json[]>
  close(): Promise<void>
}

class Refused extends Error {}

/** The messages are signed by the given topic's host, which also takes the confirmations. The endpoints' certificates are of `ca`. */
export async function openAws({ host, signer }: TestTopic, ca: string): Promise<Aws> {
  const topics = new Map<string, Topic>()
  /** The topic of each identity and type. */
  const reported = new Map<string, string>()
  const confirming: Promise<unknown>[] = []

  const topicOf = (arn = ''): Topic => {
    const topic = topics.get(arn)
    if (!topic) throw new Refused('Topic does not exist')
    return topic
  }
  const deliver = (endpoint: string, message: Message, { SignatureVersion }: Topic): Promise<Json> =>
    post(endpoint, signed(message, signer, SignatureVersion), ca)

  const actions: Record<string, (given: Record<string, string>) => string> = {
    CreateTopic({ Name = '' }) {
      if (!/^[\w-]{1,256}$/.test(Name)) throw new Refused('Invalid parameter: Topic Name')
      const arn = `arn:aws:sns:${region}:${account}:${Name}`
      if (!topics.has(arn)) topics.set(arn, { SignatureVersion: '1', subscriptions: [] })
      return `<TopicArn>${arn}</TopicArn>`
    },
    SetTopicAttributes({ TopicArn, AttributeName, AttributeValue }) {
      const topic = topicOf(TopicArn)
      if (AttributeName !== 'SignatureVersion' || (AttributeValue !== '1' && AttributeValue !== '2'))
        throw new Refused(`Invalid parameter: ${AttributeName}`)
      topic.SignatureVersion = AttributeValue
      return ''
    },
    Subscribe({ TopicArn = '', Protocol, Endpoint = '' }) {
      const topic = topicOf(TopicArn)
      if (Protocol !== 'https' || !Endpoint.startsWith('https://'))
        throw new Refused('Invalid parameter: Endpoint must match the specified protocol')
      const subscription = { endpoint: Endpoint, confirmed: false }
      topic.subscriptions.push(subscription)
      const token = randomBytes(64).toString('hex')
      const url = host.show(`/?Action=ConfirmSubscription&TopicArn=${TopicArn}&Token=${token}`, (page) => {
        subscription.confirmed = true
        page.end('<ConfirmSubscriptionResponse/>')
      })
      const message = confirmation(url, { TopicArn, Token: token })
      confirming.push(deliver(Endpoint, message, topic))
      return '<SubscriptionArn>pending confirmation</SubscriptionArn>'
    },
    SetIdentityNotificationTopic({ Identity = '', NotificationType = '', SnsTopic = '' }) {
      if (!['Bounce', 'Complaint', 'Delivery'].includes(NotificationType))
        throw new Refused('Invalid notification type')
      topicOf(SnsTopic)
      reported.set(`${Identity} ${NotificationType}`, SnsTopic)
      return ''
    },
  }

  async function answer(asked: IncomingMessage): Promise<{ status: number; page: string }> {
    const { Action = '', ...given } = Object.fromEntries(new URLSearchParams(await text(asked)))
    // What the command signs its requests for.
    const service = /\/(sns|ses|email)\/aws4_request/.exec(asked.headers.authorization ?? '')?.[1]
    const xmlns = namespaces[service === 'sns' ? 'sns' : 'ses']
    const inside = (words: string) =>
      `<${Action}Response xmlns="${xmlns}">${words}<ResponseMetadata><RequestId>${randomUUID()}</RequestId></ResponseMetadata></${Action}Response>`
    try {
      if (!service) throw new Refused('The request is not signed')
      const act = actions[Action]
      if (!act) throw new Refused(`No such action: ${Action}`)
      return { status: 200, page: inside(`<${Action}Result>${act(given)}</${Action}Result>`) }
    } catch (error) {
      if (!(error instanceof Refused)) throw error
      const page = `<ErrorResponse xmlns="${xmlns}"><Error><Type>Sender</Type><Code>InvalidParameter</Code><Message>${error.message}</Message></Error></ErrorResponse>`
      return { status: 400, page }
    }
  }

  const server = createServer((asked, response) => {
    void answer(asked).then(({ status, page }) =>
      response.writeHead(status, { 'content-type': 'text/xml' }).end(page),
    )
  }).listen(0, '127.0.0.1')
  await once(server, 'listening')

  return {
    env: {
      AWS_ENDPOINT_URL: `http://127.0.0.1:${(server.address() as AddressInfo).port}`,
      AWS_DEFAULT_REGION: region,
      AWS_ACCESS_KEY_ID: 'AKIAEXAMPLE',
      AWS_SECRET_ACCESS_KEY: randomUUID(),
      AWS_PAGER: '',
    },
    isConfirmed(arn) {
      const { subscriptions } = topicOf(arn)
      return subscriptions.length > 0 && subscriptions.every(({ confirmed }) => confirmed)
    },
    async report(identity, type, event) {
      const arn = reported.get(`${identity} ${type}`)
      const topic = topicOf(arn)
      const message = notification(event, { TopicArn: arn ?? '' })
      return Promise.all(topic.subscriptions.map(({ endpoint }) => deliver(endpoint, message, topic)))
    },
    async close() {
      await Promise.all(confirming)
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

/** Posts as SNS does, to an endpoint whose certificate it checks. */
async function post(endpoint: string, message: Message, ca: string): Promise<Json> {
  const headers = { 'content-type': 'text/plain; charset=UTF-8', 'x-amz-sns-message-type': message['Type'] }
  const asking = request(endpoint, { method: 'POST', ca, headers, agent: false })
  asking.end(JSON.stringify(message))
  const [response] = (await once(asking, 'response')) as [IncomingMessage]
  return JSON.parse(await text(response)) as Json
}

import { createSign, randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { createServer, type Server } from 'node:https'
import type { AddressInfo } from 'node:net'
import { type Answer, ask, type Json } from './client.ts'
import { type Authority, type Identity, makeAuthority } from './certificates.ts'
import { mailTopic } from './stack.ts'

// The cloud's notification topic: a real HTTPS server under the pinned host name, and its signed messages.

/** The fields of a posted message. */
export type Message = Record<string, string>
type Page = (response: ServerResponse) => void

/** An HTTPS server on loopback that serves some pages and records the requests. */
export interface TestHost {
  url: string
  /** The requested paths, including queries. */
  visits: string[]
  show(path: string, page: string | Page): string
  /** Changes the certificate that the server presents. */
  present(identity: Identity): void
  close(): Promise<void>
}

export async function openHost(name: string, identity: Identity, port = 0): Promise<TestHost> {
  const pages = new Map<string, string | Page>()
  const visits: string[] = []
  const server: Server = createServer(identity, (request, response) => {
    visits.push(request.url ?? '')
    const page = pages.get(request.url ?? '')
    if (typeof page === 'function') page(response)
    else response.writeHead(page === undefined ? 404 : 200).end(page)
  })
  server.listen(port, '127.0.0.1')
  await once(server, 'listening')
  const url = `https://${name}:${(server.address() as AddressInfo).port}`
  return {
    url,
    visits,
    show(path, page) {
      pages.set(path, page)
      return `${url}${path}`
    },
    present: (other) => server.setSecureContext(other),
    async close() {
      server.closeAllConnections()
      server.close()
      await once(server, 'close')
    },
  }
}

export interface TestTopic {
  authority: Authority
  host: TestHost
  /** The host's certificate. */
  identity: Identity
  /** The signer of the topic's messages. */
  signer: Signer
  close(): Promise<void>
}

/** The key that signs messages, and the URL of its certificate. */
export interface Signer {
  key: string
  url: string
}

/** The topic in the stack's settings. Its authority is new each time, and the API reads it again. */
export async function openTopic(): Promise<TestTopic> {
  const authority = await makeAuthority()
  await writeFile(mailTopic.caFile, authority.cert)
  const identity = await authority.issue(['localhost'])
  const host = await openHost('localhost', identity, mailTopic.port)
  const signer = publish(host, await authority.issue(['sns.amazonaws.com']))
  return { authority, host, identity, signer, close: () => host.close() }
}

/** Serves this certificate at a new path, which no API has cached. */
export function publish(host: TestHost, { cert, key }: Identity): Signer {
  return { key, url: host.show(certificatePath(), cert) }
}
export const certificatePath = (): string =>
  `/SimpleNotificationService-${randomBytes(16).toString('hex')}.pem`

/** An unsigned notification with this text: an event of the mail service, or any other. */
export const notification = (event: unknown, over: Message = {}): Message => ({
  Type: 'Notification',
  MessageId: randomUUID(),
  TopicArn: mailTopic.arn,
  Subject: 'Amazon SES Email Event Notification',
  Message: typeof event === 'string' ? event : JSON.stringify(event),
  Timestamp: new Date().toISOString(),
  ...over,
})

export const confirmation = (SubscribeURL: string, over: Message = {}): Message => ({
  Type: 'SubscriptionConfirmation',
  MessageId: randomUUID(),
  Token: randomBytes(64).toString('hex'),
  TopicArn: mailTopic.arn,
  Message: `You have chosen to subscribe to the topic ${mailTopic.arn}.\nTo confirm, visit the SubscribeURL.`,
  SubscribeURL,
  Timestamp: new Date().toISOString(),
  ...over,
})

/** Signs as the cloud does: the fields in alphabetical order, each name on a line, its value on the next. */
export function signed(message: Message, { key, url }: Signer, version: '1' | '2' = '2'): Message {
  const lines = Object.entries(message)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => `${name}\n${value}\n`)
  const signature = createSign(version === '1' ? 'RSA-SHA1' : 'RSA-SHA256')
    .update(lines.join(''))
    .sign(key, 'base64')
  return { ...message, SignatureVersion: version, Signature: signature, SigningCertURL: url }
}

/** Posts as the cloud does: JSON with a text content type. */
export const post = (message: Json, replica = '', headers: Record<string, string> = {}): Promise<Answer> =>
  ask('POST', `${replica}/api/v1/mailsvc/webhook`, {
    body: message,
    headers: { 'content-type': 'text/plain; charset=UTF-8', ...headers },
  })

// Events of the mail service, in both forms: for an identity, and for a configuration set.

export const bounce = (addresses: string[], over: Json = {}): Json => ({
  notificationType: 'Bounce',
  mail: { source: 'keelson@example.com', destination: addresses },
  bounce: {
    bounceType: 'Permanent',
    bounceSubType: 'NoEmail',
    bouncedRecipients: addresses.map((emailAddress) => ({ emailAddress, action: 'failed', status: '5.1.1' })),
    ...over,
  },
})

export const complaint = (addresses: string[], over: Json = {}): Json => ({
  eventType: 'Complaint',
  mail: { source: 'keelson@example.com', destination: addresses },
  complaint: {
    complainedRecipients: addresses.map((emailAddress) => ({ emailAddress })),
    complaintFeedbackType: 'abuse',
    ...over,
  },
})

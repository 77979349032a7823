import { createSign, randomBytes, randomUUID } from 'node:crypto'
import { once } from 'node:events'
import { writeFile } from 'node:fs/promises'
import type { ServerResponse } from 'node:http'
import { createServer, type Server } from 'node:https'
import type { AddressInfo } from 'node:net'
import { type Answer, ask, type Json } from './client.ts'
import { type Authority, type Identity, makeAuthority } from './certificates.ts'
import { mailTopic } from './stack.ts'

// The cloud's notification topic: a real https server under the pinned host name, and messages that it has signed.

/** A message as it is posted. */
export type Message = Record<string, string>
type Page = (response: ServerResponse) => void

/** An https server on loopback that shows some pages and keeps what was asked for. */
export interface TestHost {
  url: string
  /** The paths that were asked for, queries included. */
  visits: string[]
  show(path: string, page: string | Page): string
  /** Presents itself as somebody else from now on. */
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
  /** Who the host is. */
  identity: Identity
  /** Whose certificate signs. */
  signer: Signer
  close(): Promise<void>
}

/** Who signs messages, and where his certificate is. */
export interface Signer {
  key: string
  url: string
}

/** The topic that the stack's api is set to. Its authority is another each time, which the api reads anew. */
export async function openTopic(): Promise<TestTopic> {
  const authority = await makeAuthority()
  await writeFile(mailTopic.caFile, authority.cert)
  const identity = await authority.issue(['localhost'])
  const host = await openHost('localhost', identity, mailTopic.port)
  const signer = publish(host, await authority.issue(['sns.amazonaws.com']))
  return { authority, host, identity, signer, close: () => host.close() }
}

/** Shows this certificate at a path that no api has in its cache. */
export function publish(host: TestHost, { cert, key }: Identity): Signer {
  return { key, url: host.show(certificatePath(), cert) }
}
export const certificatePath = (): string =>
  `/SimpleNotificationService-${randomBytes(16).toString('hex')}.pem`

/** A notification with this text, an event of the mail service or any other; not signed yet. */
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

/** Signs as the cloud does: the fields' names in the order of the alphabet, each on a line, its value on the next. */
export function signed(message: Message, { key, url }: Signer, version: '1' | '2' = '2'): Message {
  const lines = Object.entries(message)
    .toSorted(([a], [b]) => (a < b ? -1 : 1))
    .map(([name, value]) => `${name}\n${value}\n`)
  const signature = createSign(version === '1' ? 'RSA-SHA1' : 'RSA-SHA256')
    .update(lines.join(''))
    .sign(key, 'base64')
  return { ...message, SignatureVersion: version, Signature: signature, SigningCertURL: url }
}

/** Posts it as the cloud does: JSON that says it is text. */
export const post = (message: Json, replica = '', headers: Record<string, string> = {}): Promise<Answer> =>
  ask('POST', `${replica}/api/v1/mailsvc/webhook`, {
    body: message,
    headers: { 'content-type': 'text/plain; charset=UTF-8', ...headers },
  })

// Events of the mail service, in its two forms: of an identity, and of a configuration set.

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

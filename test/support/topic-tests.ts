import { afterAll, afterEach, beforeAll, expect } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import type { Answer } from './client.ts'
import { mailTopic } from './stack.ts'
import {
  bounce,
  certificatePath,
  type Message,
  notification,
  openHost,
  openTopic,
  signed,
  type TestHost,
  type TestTopic,
} from './topic.ts'

// Shared by the tests of the mail receiver. The topic reports to the stack's API, which is configured for it
// (test/support/stack.ts). A stranger has all that the topic has, even certificates of the same authority, but is not
// the pinned host.

export let topic: TestTopic
export let strangers: TestHost[]
beforeAll(async () => {
  topic = await openTopic()
  strangers = [
    await openHost('localhost', topic.identity), // on another port
    await openHost('127.0.0.1', await topic.authority.issue(['127.0.0.1'])),
  ]
})
afterAll(async () => {
  await Promise.all([topic.close(), ...strangers.map((stranger) => stranger.close())])
})
afterEach(() => expect(strangers.flatMap(({ visits }) => visits)).toEqual([]))

export const someone = (): string => `${newId()}@example.com`
const done = { ok: true, confirmed: false, ignored: false, recorded: 0 }
export const recorded = (count: number) => ({ status: 200, body: { ...done, recorded: count } })
export const ignored = { status: 200, body: { ...done, ignored: true } }
export const confirmed = { status: 200, body: { ...done, confirmed: true } }
export const unavailable = { status: 503, body: { code: 'unavailable' } }

/** Expects a refusal that does not say why. */
export function expectRefusal({ status, body }: Answer): void {
  const { request_id: _, ...said } = body
  expect({ ...said, status }).toEqual({
    type: 'urn:keelson:problem:notification_refused',
    title: 'The notification was refused',
    code: 'notification_refused',
    status: 403,
  })
}

export const pinned = `localhost:${mailTopic.port}`
export const minutesAgo = (minutes: number) => new Date(Date.now() - minutes * 60_000).toISOString()

/** A message signed with the certificate at this URL. */
export const signedBy = async (urlOf: (path: string, cert: string) => string): Promise<Message> => {
  const { cert, key } = await topic.authority.issue(['sns.amazonaws.com'])
  return signed(notification(bounce([someone()])), { key, url: urlOf(certificatePath(), cert) })
}

export const visitsOf = (url: string) => topic.host.visits.filter((path) => url.endsWith(path)).length

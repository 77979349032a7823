import { describe, expect, jest, test } from '@jest/globals'
import { makePinnedHost } from '../../api/mail/pinned-host.ts'
import { makeSignatureCheck } from '../../api/mail/signature.ts'
import { SnsMessage } from '../../api/mail/messages.ts'
import { makeAuthority } from '../support/certificates.ts'
import { eventually } from '../support/eventually.ts'
import { mailTopic } from '../support/stack.ts'
import {
  bounce,
  certificatePath,
  notification,
  post,
  publish,
  signed,
  type TestHost,
} from '../support/topic.ts'
import {
  topic,
  strangers,
  someone,
  recorded,
  unavailable,
  expectRefusal,
  pinned,
  signedBy,
} from '../support/topic-tests.ts'

// Which certificates the mail receiver accepts, and where it requests them.

describe('the mail receiver accepts a certificate', () => {
  test.each([
    ['another port', (path: string, cert: string) => strangers[0]?.show(path, cert) ?? ''],
    ['another host', (path: string, cert: string) => strangers[1]?.show(path, cert) ?? ''],
  ])('not from a stranger with %s and a valid certificate', async (_, show) => {
    expectRefusal(await post(await signedBy(show)))
  })

  test.each([
    ['http', (path: string) => `http://${pinned}${path}`],
    ['a file', (path: string) => `file://${path}`],
    ['credentials', (path: string) => `https://user:password@${pinned}${path}`],
    [
      'the pinned host as credentials',
      (path: string) => `https://${pinned}@${new URL(strangers[0]?.url ?? '').host}${path}`,
    ],
    ['the default port', (path: string) => `https://localhost${path}`],
    ['a host below it', (path: string) => `https://sns.localhost:${mailTopic.port}${path}`],
    ['a host that begins like it', (path: string) => `https://${pinned}.example.com${path}`],
    ['its address', (path: string) => `https://127.0.0.1:${mailTopic.port}${path}`],
    ['a dot after its name', (path: string) => `https://localhost.:${mailTopic.port}${path}`],
    ['a query', (path: string) => `https://${pinned}${path}?x=1`],
    ['another ending', (path: string) => `https://${pinned}${path.replace('.pem', '.txt')}`],
    ['an ending behind a fragment', (path: string) => `https://${pinned}/?x=1#${path}`],
    ['no URL', () => 'x.pem'],
  ])('not if its URL has %s', async (_, urlOf) => {
    const before = topic.host.visits.length
    expectRefusal(await post(await signedBy(urlOf)))
    expect(topic.host.visits).toHaveLength(before)
  })

  test.each([301, 302, 307])('not after a redirect (%s), wherever it leads', async (status) => {
    const answers = [strangers[0] as TestHost, topic.host].map(async (to) => {
      const message = await signedBy((path, cert) => {
        const location = to.show(path, cert)
        return topic.host.show(
          certificatePath(),
          (page) => void page.writeHead(status, { location }).end(cert),
        )
      })
      return post(message)
    })
    for (const answer of await Promise.all(answers)) expectRefusal(answer)
  })

  test('not if the host has none', async () => {
    expectRefusal(await post(await signedBy((path) => `https://${pinned}${path}`)))
    expectRefusal(await post(await signedBy((path) => topic.host.show(path, 'no certificate'))))
    const endless = await signedBy((path, cert) => topic.host.show(path, `${cert}${' '.repeat(100_000)}`))
    expectRefusal(await post(endless))
  })

  test.each([
    ['expired', { from: new Date(Date.now() - 7_200_000), until: new Date(Date.now() - 3_600_000) }],
    ['that is not valid yet', { from: new Date(Date.now() + 3_600_000) }],
    ['of another kind of key', { key: 'ec' }],
    ['of too short a key', { key: 'short rsa' }],
  ] as const)('not if it is one %s', async (_, options) => {
    const signer = publish(topic.host, await topic.authority.issue(['sns.amazonaws.com'], options))
    expectRefusal(await post(signed(notification(bounce([someone()])), signer)))
  })

  test('not from a host with a certificate for another name or by another authority', async () => {
    const impostors = [
      await topic.authority.issue(['other.example.com']),
      await (await makeAuthority()).issue(['localhost']),
      await topic.authority.issue(['localhost'], {
        from: new Date(Date.now() - 7_200_000),
        until: new Date(Date.now() - 3_600_000),
      }),
    ]
    try {
      for (const impostor of impostors) {
        topic.host.present(topic.identity)
        const message = await signedBy((path, cert) => topic.host.show(path, cert))
        topic.host.present(impostor)
        const before = topic.host.visits.length
        expect(await post(message)).toMatchObject(unavailable)
        expect(topic.host.visits).toHaveLength(before)
        topic.host.present(topic.identity)
        // The cloud sends refused messages again.
        expect(await post(message)).toMatchObject(recorded(1))
      }
    } finally {
      topic.host.present(topic.identity)
    }
  })

  test('after a failure or a timeout, when the message comes again', async () => {
    for (const page of [
      (response: { writeHead(status: number): { end(): void } }) => response.writeHead(500).end(),
      () => {},
    ]) {
      let shown = ''
      const message = await signedBy((path, cert) => {
        shown = cert
        return topic.host.show(path, page)
      })
      expect(await post(message)).toMatchObject(unavailable)
      topic.host.show(new URL(message['SigningCertURL'] ?? '').pathname, shown)
      expect(await post(message)).toMatchObject(recorded(1))
    }
  })

  test('after a limited number of parallel requests: a message can name any certificate', async () => {
    const held: (() => void)[] = []
    const isSigned = makeSignatureCheck(makePinnedHost(pinned, mailTopic.caFile))
    const messages = []
    for (let i = 0; i < 5; i++) {
      messages.push(
        await signedBy((path, cert) => topic.host.show(path, (page) => void held.push(() => page.end(cert)))),
      )
    }
    const [last, ...first] = messages.map((message) => SnsMessage.parse(message))
    const checks = first.map(isSigned)
    await eventually(() => held.length === first.length)
    await expect(isSigned(last as SnsMessage)).rejects.toMatchObject({ status: 503 })
    for (const release of held) release()
    expect(await Promise.all(checks)).toEqual(first.map(() => true))
  })

  test('once for many messages, until it expires', async () => {
    const hour = 3_600_000
    const signer = publish(
      topic.host,
      await topic.authority.issue(['sns.amazonaws.com'], { until: new Date(Date.now() + hour) }),
    )
    const message = SnsMessage.parse(signed(notification('x'), signer))
    const isSigned = makeSignatureCheck(makePinnedHost(pinned, mailTopic.caFile))
    const visits = () => topic.host.visits.filter((path) => signer.url.endsWith(path)).length

    expect(await Promise.all(Array.from({ length: 10 }, () => isSigned(message)))).not.toContain(false)
    expect(await isSigned(message)).toBe(true)
    expect(visits()).toBe(1)

    const later = Date.now() + hour + 1
    const clock = jest.spyOn(Date, 'now').mockReturnValue(later)
    try {
      expect(await isSigned(message)).toBe(false)
      expect(visits()).toBe(2)
    } finally {
      clock.mockRestore()
    }
  })
})

import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { Webhook } from 'standardwebhooks'
import { newId } from '../../lib/ids.ts'
import { EventSubscription } from '../../models/deploy/event-subscriptions.ts'
import { EventDelivery, tellEvent } from '../../models/deploy/events.ts'
import { eventMailsPerHour, MailRecord } from '../../models/identity/mails.ts'
import { User } from '../../models/identity/users.ts'
import { MailSuppression, suppress } from '../../models/mail/suppressions.ts'
import { warnOfExpiry } from '../../models/network/certificate-renewals.ts'
import { loadAppImages } from '../support/app-images.ts'
import { makeAuthority } from '../support/certificates.ts'
import type { Accepted, Json } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { type DeliveryBody, eventsOf } from '../support/clients/events.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { type Received, startReceiver } from '../support/receiver.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Event subscriptions, with a receiver on this machine. Deployments tell theirs in applications.test.ts; a killed worker
// is in deployment-kills.test.ts.

let tenant: TestTenant
let server: Accepted
let events: ReturnType<typeof eventsOf>
let receiver: Awaited<ReturnType<typeof startReceiver>>

beforeAll(async () => {
  receiver = await startReceiver()
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.create() // subscriptions do not need it to be ready
  events = eventsOf(tenant.owner, server.id)
})

afterAll(() => receiver?.close())

const minutesUntil = (time: string | null): number => (Date.parse(String(time)) - Date.now()) / 60_000

const isVerified = (secret: string, { body, headers }: Received): boolean => {
  try {
    return Boolean(new Webhook(secret).verify(body, headers))
  } catch {
    return false
  }
}

const hasEnded = ({ status }: DeliveryBody): boolean => status !== 'waiting'
const hasFailedOnce = (body: DeliveryBody): boolean => body['error'] !== null

describe('a webhook', () => {
  test('is signed in the Standard Webhooks form and logged', async () => {
    const { id, secret, ...shown } = await events.make({ url: receiver.url('/signed') })
    expect(secret).toMatch(/^whsec_/)
    expect(shown).toMatchObject({
      kinds: null,
      app_ids: null,
      enabled: true,
      secret_hint: secret.slice(-4),
    })
    const told = await events.test(id)
    expect(told).toMatchObject({ kind: 'test', status: 'waiting', attempts: 0 })
    const [received] = (await receiver.arrived('/signed')) as [Received]
    expect(received.headers['webhook-id']).toBe(told.event_id)
    expect(isVerified(secret, received)).toBe(true)
    expect(isVerified(secret, { ...received, body: received.body.replace('test', 'best') })).toBe(false)
    expect(JSON.parse(received.body)).toMatchObject({
      id: told.event_id,
      type: 'test',
      timestamp: expect.any(String),
      data: { deploy_server_id: server.id, message: told.message },
    })
    const delivered = await events.awaitDelivery(id, told.id, hasEnded)
    expect(delivered).toMatchObject({
      status: 'delivered',
      attempts: 1,
      response_status: 204,
      duration_ms: expect.any(Number),
      error: null,
      next_at: null,
    })
    expect(await events.deliveries(id, '&status=delivered')).toEqual([delivered])
    expect(await events.get(id)).not.toHaveProperty('secret')
  })

  test('is retried after an answer of 500, with the same id and body and a new signature', async () => {
    const busy = { now: true }
    receiver.replies('/busy', () => (busy.now ? { status: 500, body: 'try again' } : { status: 200 }))
    const { id, secret } = await events.make({ url: receiver.url('/busy') })
    const told = await events.test(id)
    const failed = await events.awaitDelivery(id, told.id, hasFailedOnce)
    expect(failed).toMatchObject({
      status: 'waiting',
      response_status: 500,
      response_body: 'try again',
      error: 'It answered 500',
      next_at: expect.any(String),
    })
    expect(await events.get(id)).toMatchObject({ failing_since: expect.any(String) })
    const [first, second] = (await receiver.arrived('/busy', 2)) as [Received, Received]
    expect(second.headers['webhook-id']).toBe(first.headers['webhook-id'])
    expect(second.body).toBe(first.body)
    expect(second.headers['webhook-timestamp']).not.toBe(first.headers['webhook-timestamp'])
    expect(isVerified(secret, second)).toBe(true)
    const again = await events.awaitDelivery(id, told.id, ({ attempts, next_at, status }) => {
      return attempts === 2 && status === 'waiting' && minutesUntil(next_at) > 1 // the attempt has ended
    })
    expect(minutesUntil(failed.next_at)).toBeLessThan(1)
    expect(minutesUntil(again.next_at)).toBeGreaterThan(4)
    busy.now = false
    expect(await events.redeliver(id, told.id)).toMatchObject({ status: 200 }) // the next retry is minutes away
    expect(await events.awaitDelivery(id, told.id, hasEnded)).toMatchObject({
      status: 'delivered',
      attempts: 3,
    })
    expect(await events.get(id)).toMatchObject({ enabled: true, failing_since: null })
  })

  test('is delivered again on request, with the same id', async () => {
    const { id } = await events.make({ url: receiver.url('/again') })
    const told = await events.test(id)
    await events.awaitDelivery(id, told.id, hasEnded)
    expect(await events.redeliver(id, told.id)).toMatchObject({ status: 200, body: { status: 'waiting' } })
    const ids = (await receiver.arrived('/again', 2)).map(({ headers }) => headers['webhook-id'])
    expect(ids).toEqual([told.event_id, told.event_id])
    expect(await events.awaitDelivery(id, told.id, hasEnded)).toMatchObject({
      status: 'delivered',
      attempts: 2,
    })
  })

  test('is signed by the former secret as well for a day after a rotation', async () => {
    const { id, secret } = await events.make({ url: receiver.url('/rotated') })
    const { status, body } = await events.rotate(id)
    expect([status, body['secret']]).toEqual([200, expect.not.stringMatching(secret)])
    await events.test(id)
    const [received] = (await receiver.arrived('/rotated')) as [Received]
    expect([secret, String(body['secret'])].map((one) => isVerified(one, received))).toEqual([true, true])
    await EventSubscription.updateOne(
      { _id: id, tenant_id: tenant.id },
      { $set: { former_until: new Date() } },
    )
    await eventually(async () => (await events.tryTest(id)).status === 201)
    const later = (await receiver.arrived('/rotated', 2))[1] as Received
    expect([secret, String(body['secret'])].map((one) => isVerified(one, later))).toEqual([false, true])
  })

  testDrawn('that does not answer delays no other receiver', async () => {
    receiver.replies('/silent', () => null)
    const { id } = await events.make({ url: receiver.url('/silent', 'localhost') })
    const about = { tenant_id: tenant.id, deploy_server_id: server.id, data: {} }
    for (let n = 1; n <= 8; n++) await tellEvent({ ...about, kind: 'worker.lost', message: `w${n} is lost` })
    await receiver.arrived('/silent')
    const other = await events.make({ url: receiver.url('/fast') })
    const told = await events.test(other.id)
    await events.awaitDelivery(other.id, told.id, hasEnded)
    // The first of the silent ones have not even timed out.
    expect((await events.deliveries(id)).every(({ status }) => status === 'waiting')).toBe(true)
    expect(receiver.at('/silent').length).toBeLessThanOrEqual(4)
    expect(await events.delete(id)).toMatchObject({ status: 204 })
    expect(await EventDelivery.exists({ subscription_id: id, tenant_id: tenant.id })).toBeNull()
  })
})

describe('a subscription', () => {
  test('gets the kinds and applications that it asks for', async () => {
    const { id } = await events.make({ url: receiver.url('/lost'), kinds: ['worker.lost'] })
    const about = { tenant_id: tenant.id, deploy_server_id: server.id, data: {} }
    const appOnly = await events.make({ url: receiver.url('/app') })
    const app_ids = [newId()]
    await EventSubscription.updateOne({ _id: appOnly.id, tenant_id: tenant.id }, { $set: { app_ids } })
    await tellEvent({ ...about, kind: 'worker.replaced', message: 'w1 was replaced' })
    await tellEvent({ ...about, app_id: newId(), kind: 'application.deployed', message: 'other' })
    await tellEvent({
      ...about,
      app_id: String(app_ids[0]),
      kind: 'application.deployed',
      message: 'its own',
    })
    await tellEvent({ ...about, kind: 'worker.lost', message: 'w1 is lost' })
    expect((await events.deliveries(id)).map(({ message }) => message)).toEqual(['w1 is lost'])
    expect((await events.deliveries(appOnly.id, '&order=asc')).map(({ message }) => message)).toEqual([
      'w1 was replaced',
      'its own',
      'w1 is lost',
    ])
    expect(JSON.parse((await receiver.arrived('/lost'))[0]?.body ?? '')).toMatchObject({
      type: 'worker.lost',
    })
  })

  testDrawn('is told of a certificate that expires', async () => {
    const { id } = await events.make({ url: receiver.url('/cert'), kinds: ['certificate.expiring'] })
    const until = new Date(Date.now() + 10 * 86_400_000)
    const { cert, key } = await (await makeAuthority()).issue(['shop.example'], { until })
    await tenant.owner.ask('POST', '/api/v1/certificates', {
      name: 'shop',
      certificate_pem: cert,
      private_key_pem: key,
    })
    await warnOfExpiry() // the worker does so each hour
    const [received] = await receiver.arrived('/cert')
    expect(JSON.parse(received?.body ?? '')).toMatchObject({
      type: 'certificate.expiring',
      data: { days: 14 },
    })
    expect(await events.deliveries(id)).toHaveLength(1)
  })

  test('is disabled at once by an answer of 410, and says so', async () => {
    receiver.replies('/gone', () => ({ status: 410 }))
    const { id, name } = await events.make({ url: receiver.url('/gone') })
    const told = await events.test(id)
    expect(await events.awaitDelivery(id, told.id, hasEnded)).toMatchObject({ status: 'failed', attempts: 1 })
    expect(await events.get(id)).toMatchObject({
      enabled: false,
      status_reason: 'The receiver answered 410 Gone',
    })
    const { email = '' } = (await User.findOne({ tenant_id: tenant.id, roles: 'owner' }).lean()) ?? {}
    await eventually(() => MailRecord.exists({ to: email }))
    for (const refused of [events.tryTest(id), events.redeliver(id, told.id)])
      expect(await refused).toMatchObject({ status: 409, body: { code: 'state_conflict' } })
    await tellEvent({
      tenant_id: tenant.id,
      deploy_server_id: server.id,
      kind: 'worker.lost',
      message: 'w1 is lost',
      data: {},
    })
    expect(await events.deliveries(id)).toHaveLength(1)
    receiver.replies('/gone', () => ({ status: 200 }))
    expect(await events.change(id, { enabled: true })).toMatchObject({
      status: 200,
      body: { name, enabled: true, status_reason: null },
    })
    expect(await events.redeliver(id, told.id)).toMatchObject({ status: 200 })
    expect(await events.awaitDelivery(id, told.id, hasEnded)).toMatchObject({ status: 'delivered' })
  })

  testDrawn('is disabled after a week of failures alone, and what waits fails', async () => {
    receiver.replies('/down', () => ({ status: 503 }))
    const { id } = await events.make({ url: receiver.url('/down') })
    const waiting = await events.test(id)
    await events.awaitDelivery(id, waiting.id, hasFailedOnce)
    const failing_since = new Date(Date.now() - 7 * 86_400_000)
    await EventSubscription.updateOne({ _id: id, tenant_id: tenant.id }, { $set: { failing_since } })
    await events.redeliver(id, waiting.id)
    expect(await events.awaitDelivery(id, waiting.id, hasEnded)).toMatchObject({ status: 'failed' })
    expect(await events.get(id)).toMatchObject({
      enabled: false,
      status_reason: 'Nothing was delivered for a week; the last failure: It answered 503',
    })
  })

  testDrawn('has failed for good after ten attempts', async () => {
    receiver.replies('/never', () => ({ status: 500 }))
    const { id } = await events.make({ url: receiver.url('/never') })
    const told = await events.test(id)
    await events.awaitDelivery(id, told.id, hasFailedOnce)
    const before = { attempts: 9, next_at: new Date() }
    await EventDelivery.updateOne({ _id: told.id, tenant_id: tenant.id }, { $set: before })
    expect(await events.awaitDelivery(id, told.id, hasEnded)).toMatchObject({
      status: 'failed',
      attempts: 10,
    })
    expect(await events.get(id)).toMatchObject({ enabled: true })
  })

  test('mails to a user of the tenant, unless the address is suppressed', async () => {
    const { email: to = '' } = (await User.findOne({ tenant_id: tenant.id }).lean()) ?? {}
    const { id, ...made } = await events.make({ address: to })
    expect(made).toMatchObject({ url: null, address: to, secret: null })
    const told = await events.test(id)
    expect(await events.awaitDelivery(id, told.id, hasEnded)).toMatchObject({ status: 'delivered' })
    await eventually(() => MailRecord.exists({ to, state: 'sent' }))
    await suppress([to], { reason: 'bounce', detail: null })
    await events.redeliver(id, told.id)
    expect(await events.awaitDelivery(id, told.id, hasEnded)).toMatchObject({
      status: 'failed',
      error: 'The address gets no mail, because mail to it bounced or was reported as spam',
    })
    await MailSuppression.deleteOne({ address: to })
    const another = {
      to,
      text_sealed: '-',
      state: 'sent' as const,
      due_at: new Date(),
      created_at: new Date(),
    }
    await MailRecord.insertMany(
      Array.from({ length: eventMailsPerHour }, () => ({ ...another, _id: newId(), event_of: tenant.id })),
    )
    await EventSubscription.updateOne({ _id: id, tenant_id: tenant.id }, { $set: { failing_since: null } })
    await events.redeliver(id, told.id)
    expect(await events.awaitDelivery(id, told.id, hasEnded)).toMatchObject({
      status: 'failed',
      error: 'The tenant has had its 100 mails of this hour: deliver it again later',
    })
    expect(await events.get(id)).toMatchObject({ enabled: true, failing_since: null })
    await MailRecord.deleteMany({ event_of: tenant.id })
    expect(await events.rotate(id)).toMatchObject({ status: 409, body: { code: 'no_secret' } })
  })
})

describe('a target', () => {
  test.each([
    ['a private address', 'http://10.0.0.1/', '/url'],
    ['the metadata of a cloud', 'http://169.254.169.254/latest', '/url'],
    ['a loopback address in decimal form', 'http://2130706433/', '/url'],
    ['an IPv4 address in IPv6', 'http://[::ffff:127.0.0.1]/', '/url'],
    ['another port than the one allowed', 'http://127.0.0.1:1/', '/url'],
    ['a URL with a password', 'https://user:password@hooks.example/', '/url'],
    ['no URL of http', 'ftp://hooks.example/', '/url'],
  ])('that is %s is refused at once', async (_, url, pointer) => {
    const { id } = await events.make({ url: receiver.url('/changed') })
    for (const refused of [events.create({ url }), events.change(id, { url })])
      expect(await refused).toMatchObject({ status: 422, body: { errors: [{ pointer }] } })
    await events.delete(id)
  })

  test('whose name leads to a private address gets nothing, and the log says so', async () => {
    const { id } = await events.make({ url: 'http://localhost:1/' })
    const told = await events.test(id)
    expect(await events.awaitDelivery(id, told.id, hasFailedOnce)).toMatchObject({
      status: 'waiting',
      error: 'The URL does not lead to a public address',
      response_status: null,
    })
  })

  test.each([
    ['neither a URL nor an address', {}, '/url'],
    ['both', { url: 'https://hooks.example/', address: 'a@example.com' }, '/url'],
    ['the address of a stranger', { address: 'stranger@example.com' }, '/address'],
    ['an unknown application', { url: 'https://hooks.example/', app_ids: [newId()] }, '/app_ids'],
    ['no kind', { url: 'https://hooks.example/', kinds: [] }, '/kinds'],
  ])('with %s is refused', async (_, fields, pointer) => {
    expect(await events.create(fields)).toMatchObject({ status: 422, body: { errors: [{ pointer }] } })
  })

  test('is named once', async () => {
    const { name } = await events.make({ url: receiver.url('/named') })
    expect(await events.create({ name, url: receiver.url('/named') })).toMatchObject({
      status: 409,
      body: { code: 'name_taken' },
    })
  })
})

test('a webhook gets the events of deployments, each signed', async () => {
  await server.operation.success()
  await loadAppImages(tenant.owner, await tenant.owner.deployServers.get(server.id))
  const kinds = ['application.deployed', 'application.deploy_failed', 'application.rolled_back']
  const { id, secret } = await events.make({ url: receiver.url('/deployments'), kinds })
  const apps = applicationsOf(tenant.owner, server.id)
  const app = await apps.make({ name: 'shop' })
  const [released] = await apps.deployments(`&app_id=${app.id}`)
  const failing = await apps.deploy(app.id, { tag: 'crash', message: 'New prices' })
  expect(await failing.operation.end()).toMatchObject({ state: 'failed' })
  const all = await receiver.arrived('/deployments', 3) // two are sent at once, in no order
  expect(all.map((one) => isVerified(secret, one))).toEqual([true, true, true])
  const bodies = new Map(all.map(({ body }) => JSON.parse(body) as Json).map((body) => [body['type'], body]))
  expect(new Set(bodies.keys())).toEqual(new Set(kinds))

  const application = { id: app.id, name: 'shop' }
  const first = { id: released?.id, number: 1, kind: 'deploy', image: 'demo', tag: 'v1', message: null }
  expect(bodies.get('application.deployed')).toMatchObject({
    timestamp: expect.any(String),
    data: {
      deploy_server_id: server.id,
      message: 'shop v1 was deployed',
      application,
      deployment: first,
      serves: first,
    },
  })
  const failure = {
    deploy_server_id: server.id,
    application,
    deployment: { id: failing.id, number: 2, kind: 'deploy', tag: 'crash', message: 'New prices' },
    serves: first,
    reason: expect.stringContaining('exit code 3'),
  }
  expect(bodies.get('application.deploy_failed')).toMatchObject({
    data: { ...failure, message: expect.stringMatching(/^shop crash was not deployed: .*exit code 3/) },
  })
  expect(bodies.get('application.rolled_back')).toMatchObject({
    data: { ...failure, message: expect.stringMatching(/^shop crash was taken back, and v1 serves on: /) },
  })
  // The answer to the last one may still be on its way.
  await eventually(async () => (await events.deliveries(id)).every(({ status }) => status === 'delivered'))
})

test('a viewer reads subscriptions and their log, and changes nothing', async () => {
  const { id } = await events.make({ url: receiver.url('/viewed') })
  const viewer = eventsOf(await tenant.user('viewer'), server.id)
  expect(await viewer.deliveries(id)).toEqual([])
  expect(await viewer.tryTest(id)).toMatchObject({ status: 403, body: { permission: 'webhooks:update' } })
  expect(await viewer.delete(id)).toMatchObject({ status: 403, body: { permission: 'webhooks:delete' } })
})

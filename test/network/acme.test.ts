import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { temporalClient } from '../../lib/temporal.ts'
import { sealSecret } from '../../models/secrets.ts'
import { AcmeChallenge, CertificateOrder } from '../../models/network/certificate-orders.ts'
import { Certificate } from '../../models/network/certificates.ts'
import { certificateSchedule } from '../../worker/schedules.ts'
import {
  type AcmeWorld,
  issued,
  leftOf,
  makeAcmeWorld,
  nothingLeft,
  serve,
  servedTo,
} from '../support/acme.ts'
import { makeAuthority } from '../support/certificates.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { describeHosts, second } from '../support/describe-hosts.ts'
import { decodedHistory, textOfHistory } from '../support/histories.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { describeAcme } from '../support/describe-acme.ts'
import { openPebble } from '../support/pebble.ts'
import { stackSettings } from '../support/stack.ts'
import { makeTenant, removeTenants } from '../support/tenants.ts'

// Certificates by ACME, from a real ACME server that asks a real load balancer for the proofs.

const dayMs = 86_400_000
const inDays = (days: number): Date => new Date(Date.now() + days * dayMs)
/** Nothing listens here. */
const deaf = '127.0.0.99'

let world: AcmeWorld
const certificates = () => world.tenant.owner.certificates
const ask = (method: string, path: string, body?: unknown) =>
  world.tenant.owner.ask(method, `/api/v1${path}`, body)

const temporal = temporalClient(stackSettings())
const look = (): Promise<void> => temporal.schedule.getHandle(certificateSchedule).trigger()

const historyOf = async (workflowId: string): Promise<string> =>
  textOfHistory(await decodedHistory(temporal, workflowId))

async function upload(name: string, days: number): Promise<string> {
  const { cert, key } = await (await makeAuthority()).issue([name], { until: inDays(days) })
  const { body } = await ask('POST', '/certificates', {
    name: name.replaceAll('.', '-'),
    certificate_pem: cert,
    private_key_pem: key,
  })
  return String(body['id'])
}

const suite = () => {
  beforeAll(async () => {
    await closeFurther()
    world = await makeAcmeWorld()
  })
  afterAll(async () => {
    await world?.pebble.close()
    await closeFurther()
    await temporal.connection.close()
    await removeTenants()
  })

  test('the platform obtains a certificate, and the load balancer serves it', async () => {
    const { id, operation } = await certificates().order('shop.example', 'www.shop.example')
    const { workflow_id } = await operation.success()
    const shown = await certificates().get(id)
    expect(shown).toMatchObject({ status: 'available', source: 'acme', days_left: 89 })
    expect([...(shown['domains'] as string[])].toSorted()).toEqual(['shop.example', 'www.shop.example'])
    const [begins, ends, renews] = [shown.not_before, shown.not_after, shown.renews_at].map((time) =>
      Date.parse(time ?? ''),
    ) as [number, number, number]
    expect((renews - begins) / (ends - begins)).toBeCloseTo(2 / 3, 3)
    expect(JSON.stringify(shown)).not.toMatch(/PRIVATE|sealed/)
    expect(await leftOf(world.tenant)).toEqual(nothingLeft)
    const history = await historyOf(workflow_id)
    expect([history.includes(id), /PRIVATE|sealed/.test(history)]).toEqual([true, false])

    const port = await serve(world, [id])
    const root = await world.pebble.root()
    for (const name of ['shop.example', 'www.shop.example'])
      expect(await servedTo(world.address, port, name, root)).toBe(shown.fingerprint)
  })

  testDrawn('a renewal replaces the certificate and its key on listeners', async () => {
    const before = await issued(world.tenant, 'renewed.example')
    const keyOf = async () =>
      (await Certificate.findOne({ _id: before.id, tenant_id: world.tenant.id }).lean())?.private_key_sealed
    const key = await keyOf()
    const port = await serve(world, [before.id])
    await (await certificates().renew(before.id)).operation.success()
    const after = await certificates().get(before.id)
    expect(after.status).toBe('available')
    expect(after.fingerprint).not.toBe(before.fingerprint)
    expect(await keyOf()).not.toBe(key)
    const root = await world.pebble.root()
    await eventually(
      async () => (await servedTo(world.address, port, 'renewed.example', root)) === after.fingerprint,
    )
    expect(await leftOf(world.tenant)).toEqual(nothingLeft)
  })

  test('a domain that does not lead to the load balancer fails the creation, and a renewal tries again', async () => {
    await world.pebble.resolve('lost.example', deaf)
    const { id, operation } = await certificates().order('shop.example', 'lost.example')
    const ended = await operation.end()
    expect(ended).toMatchObject({ state: 'failed', error: { code: 'authority_refused' } })
    expect(ended.error?.detail).toContain('lost.example')
    const failed = await certificates().get(id)
    expect(failed).toMatchObject({ status: 'error', status_reason: ended.error?.detail, not_after: null })
    expect(await certificates().activity(id)).toMatchObject([{ kind: 'issue_failed' }])
    expect(await leftOf(world.tenant)).toEqual(nothingLeft)

    await world.pebble.resolve('lost.example', null)
    await (await certificates().renew(id)).operation.success()
    expect(await certificates().get(id)).toMatchObject({ status: 'available', status_reason: null })
  })

  test('a failed renewal keeps the certificate in use, and says why', async () => {
    const before = await issued(world.tenant, 'moved.example')
    await world.pebble.resolve('moved.example', deaf)
    const { operation } = await certificates().renew(before.id)
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'authority_refused' } })
    const after = await certificates().get(before.id)
    expect(after).toMatchObject({ status: 'error', fingerprint: before.fingerprint })
    expect(after.status_reason).toContain('moved.example')
    expect(Date.parse(after.renews_at ?? '')).toBeGreaterThan(Date.now())
    expect(await certificates().activity(before.id)).toMatchObject([
      { kind: 'renewal_failed' },
      { kind: 'created' },
    ])
    const port = await serve(world, [before.id])
    const served = await servedTo(world.address, port, 'moved.example', await world.pebble.root())
    expect(served).toBe(before.fingerprint)
  })

  test('the schedule renews what is due, by an operation of the platform', async () => {
    const before = await issued(world.tenant, 'due.example')
    await Certificate.updateOne(
      { _id: before.id, tenant_id: world.tenant.id },
      { $set: { renews_at: new Date() } },
    )
    await look()
    const after = await eventually(async () => {
      const now = await certificates().get(before.id)
      return now.fingerprint !== before.fingerprint && now.operation_id === null && now
    })
    expect(after.status).toBe('available')
    const { items } = await world.tenant.owner.get<{ items: unknown[] }>(
      `/api/v1/operations?resource_id=${before.id}&verb=renew`,
    )
    expect(items).toMatchObject([{ state: 'succeeded', requested_by: null }])
  })

  test('the tenant is warned 30, 14 and 3 days before an expiry, once each', async () => {
    const id = await upload('old.example', 10)
    await serve(world, [id])
    const warnings = async (list: Promise<Record<string, unknown>[]>) =>
      (await list)
        .filter(
          ({ kind, data }) =>
            kind === 'certificate_expires' && (data as { certificate_id: string }).certificate_id === id,
        )
        .map(({ data }) => (data as { days: number }).days)
    const all = async () => [
      await warnings(certificates().activity(id)),
      await warnings(world.tenant.owner.loadBalancers.activity(world.lb.id)),
    ]
    await look()
    await eventually(async () => (await all()).flat().length > 0)
    expect(await all()).toEqual([[14], [14]])
    await Certificate.updateOne({ _id: id, tenant_id: world.tenant.id }, { $set: { not_after: inDays(2) } })
    await look()
    await eventually(async () => (await all()).flat().length > 2)
    expect(await all()).toEqual([
      [3, 14],
      [3, 14],
    ])
  })

  testDrawn('a cancelled creation leaves nothing', async () => {
    world.pebble.pause()
    const { id, operation } = await certificates().order('slow.example')
    await eventually(async () => (await operation.now()).step !== null)
    await operation.cancel()
    expect(await operation.end()).toMatchObject({ state: 'cancelled' })
    world.pebble.resume()
    expect(await certificates().get(id)).toMatchObject({ status: 'error', certificate_pem: null })
    expect(await leftOf(world.tenant)).toEqual(nothingLeft)
  })

  testDrawn('a deletion ends a creation', async () => {
    world.pebble.pause()
    const { id, operation } = await certificates().order('gone.example')
    await eventually(async () => (await operation.now()).step !== null)
    expect(
      await ask('PUT', `/load-balancers/${world.lb.id}`, {
        listeners: [{ port: 443, protocol: 'https', certificate_ids: [id] }],
      }),
    ).toMatchObject({ status: 409, body: { code: 'state_conflict' } })
    await (await certificates().delete(id)).operation.success()
    world.pebble.resume()
    expect(await ask('GET', `/certificates/${id}`)).toMatchObject({ status: 404 })
    expect(await leftOf(world.tenant)).toEqual(nothingLeft)
  })

  test('without an http listener nobody can answer the authority', async () => {
    const other = await makeTenant()
    const { operation } = await other.owner.certificates.order('shop.example')
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'no_http_listener' } })
  })

  test('another tenant does not see a certificate', async () => {
    const { id } = await issued(world.tenant, 'secret.example')
    const { owner } = await makeTenant()
    for (const [method, path] of [
      ['GET', ''],
      ['GET', '/activity'],
      ['POST', '/renew'],
      ['DELETE', ''],
    ] as const)
      expect(await owner.ask(method, `/api/v1/certificates/${id}${path}`)).toMatchObject({ status: 404 })
  })

  test('uploads and ACME do not replace each other', async () => {
    const uploaded = await upload('mine.example', 60)
    expect(await ask('POST', `/certificates/${uploaded}/renew`)).toMatchObject({
      status: 409,
      body: { code: 'certificate_uploaded' },
    })
    const { id } = await issued(world.tenant, 'theirs.example')
    const { cert, key } = await (await makeAuthority()).issue(['theirs.example'])
    const change = { certificate_pem: cert, private_key_pem: key }
    expect(await ask('PUT', `/certificates/${id}`, change)).toMatchObject({
      status: 409,
      body: { code: 'certificate_not_uploaded' },
    })
  })

  testDrawn('an authority that has lost its accounts gets the tenant’s again', async () => {
    await issued(world.tenant, 'known.example')
    await world.pebble.close() // it keeps all in memory
    world.pebble = await openPebble(world.address, world.httpPort)
    const { id } = await issued(world.tenant, 'again.example')
    const port = await serve(world, [id])
    const { fingerprint } = await certificates().get(id)
    expect(await servedTo(world.address, port, 'again.example', await world.pebble.root())).toBe(fingerprint)
  })

  testDrawn(
    'what an order of an ended operation left is cleared up, and nothing of an open one',
    async () => {
      await world.pebble.resolve('ended.example', deaf)
      const ended = await certificates().order('ended.example')
      await ended.operation.end()
      world.pebble.pause()
      const going = await certificates().order('open.example')
      const orderOf = (id: string) => CertificateOrder.findOne({ _id: id, tenant_id: world.tenant.id }).lean()
      const made = await eventually(() => orderOf(going.operation.id))
      // As the workflow leaves it when an operator terminates it.
      const { id: _id } = ended.operation
      await new CertificateOrder({ ...made, _id, private_key_sealed: await sealSecret('key', _id) }).save()
      const proof = {
        certificate_id: ended.id,
        domain: 'ended.example',
        token: 'left',
        key_authorization: 'left',
      }
      await new AcmeChallenge({ tenant_id: world.tenant.id, order_id: _id, ...proof }).save()
      await look()
      await eventually(async () => !(await orderOf(_id)))
      expect(await leftOf(world.tenant)).toEqual({ orders: 1, challenges: 0 })
      world.pebble.resume()
      await going.operation.success()
      expect(await leftOf(world.tenant)).toEqual(nothingLeft)
    },
  )

  test.each([
    ['a wildcard', ['*.shop.example']],
    ['upper case', ['Shop.example']],
    ['an address', ['10.0.0.9']],
    ['a single label', ['shop']],
    ['a name twice', ['shop.example', 'shop.example']],
    ['no name', []],
    ['too many names', Array.from({ length: 21 }, (_, i) => `n${i}.example`)],
    ['a line break', ['shop.example\n']],
  ])('a request for %s is refused', async (_, domains) => {
    expect(await ask('POST', '/certificates', { name: 'refused', domains })).toMatchObject({
      status: 422,
      body: { code: 'invalid_input' },
    })
  })

  test('each replica answers the authority', async () => {
    await open([second])
    const { operation } = await world.tenant.owner.loadBalancers.update(world.lb.id, {
      replicas: 2,
      listeners: [{ port: 80, protocol: 'http', host_port: world.httpPort }],
    })
    await operation.success()
    const { endpoints } = await world.tenant.owner.loadBalancers.get(world.lb.id)
    expect(new Set(endpoints.map(({ host_id }) => host_id)).size).toBe(2)
    for (const { host_id, host_address, ports } of endpoints) {
      expect(ports).toMatchObject([{ host_port: world.httpPort }])
      await world.pebble.resolve('two.example', host_address)
      const { status } = await issued(world.tenant, 'two.example')
      expect({ host_id, status }).toEqual({ host_id, status: 'available' })
    }
  })
}

describeHosts('ACME:', () => describeAcme('', suite))

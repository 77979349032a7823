import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { Certificate } from '../../models/network/certificates.ts'
import { servedTo } from '../support/acme.ts'
import { loadAppImages } from '../support/app-images.ts'
import type { DeployServerBody } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { describeAcme } from '../support/describe-acme.ts'
import { testDrawn } from '../support/drawn.ts'
import { eventually } from '../support/eventually.ts'
import { openPebble, type Pebble } from '../support/pebble.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit } from '../support/visits.ts'

// The domains of applications, with certificates of a real ACME server.

let tenant: TestTenant
let server: DeployServerBody
let apps: ReturnType<typeof applicationsOf>
beforeAll(async () => {
  tenant = await makeTenant()
  server = await tenant.owner.deployServers.make()
  await loadAppImages(tenant.owner, server)
  apps = applicationsOf(tenant.owner, server.id)
})

const balancer = () => tenant.owner.loadBalancers.get(server.lb_id)
const securePort = async (): Promise<number | undefined> =>
  (await balancer()).endpoints[0]?.ports.find(({ port }) => port === 443)?.host_port
const certificate = (id: string | null) => tenant.owner.certificates.get(id ?? '')

/** The URL of a domain at the load balancer. */
const at = (app: { url: string }, name: string): string => `http://${name}:${new URL(app.url).port}`

async function added(app: { id: string }, name: string, redirect_to?: string): Promise<string> {
  const body = { name, tls: false, ...(redirect_to ? { redirect_to } : {}) }
  const { id, operation } = await apps.addDomain(app.id, body)
  await operation.success()
  return id
}

describe('a domain', () => {
  let plain: { id: string } | undefined

  test('leads to its application at once, and follows its releases', async () => {
    const app = await apps.make()
    const id = await added(app, 'Shop.Example.com')
    expect(await apps.domain(app.id, id)).toMatchObject({
      status: 'active',
      name: 'shop.example.com',
      url: at(app, 'shop.example.com'),
      redirect_to: null,
      certificate_id: null,
    })
    expect((await visit(at(app, 'shop.example.com'))).text).toBe('v1')
    await (await apps.deploy(app.id, { tag: 'v2' })).operation.success()
    expect((await visit(at(app, 'shop.example.com'))).text).toBe('v2')
    expect((await visit(app.url)).text).toBe('v2')

    const other = await apps.make()
    const path = `/api/v1/deploy-servers/${server.id}/applications/${other.id}/domains`
    expect(await tenant.owner.ask('POST', path, { name: 'shop.example.com' })).toMatchObject({
      status: 409,
      body: { code: 'name_taken' },
    })
    expect((await tenant.owner.ask('DELETE', `${path}/${id}`)).status).toBe(404)
    await (await apps.removeDomain(app.id, id)).operation.success()
    expect((await visit(at(app, 'shop.example.com'))).status).toBe(404)
    await added(other, 'shop.example.com')
    for (const one of [app, other]) await (await apps.delete(one.id)).operation.success()
    expect((await visit(at(app, 'shop.example.com'))).status).toBe(404)
  })

  test('is redirected to another, with the path kept, and stays while its application is stopped', async () => {
    const app = await apps.make()
    await added(app, 'www.example.com', 'example.com')
    const redirect = { status: 308, location: `${at(app, 'example.com')}/a?b=c` }
    expect(await visit(at(app, 'www.example.com'), '/a?b=c')).toMatchObject(redirect)
    await added(app, 'example.com')
    await (await apps.stop(app.id)).operation.success()
    expect(await visit(at(app, 'www.example.com'), '/a?b=c')).toMatchObject(redirect)
    expect((await visit(at(app, 'example.com'))).status).toBe(404)
    await (await apps.deploy(app.id)).operation.success()
    expect((await visit(at(app, 'example.com'))).text).toBe('v1')
    await (await apps.delete(app.id)).operation.success()
    expect((await visit(at(app, 'www.example.com'))).status).toBe(404)
  })

  test.each([
    ['/name', { name: '*.example.com' }],
    ['/name', { name: 'example com' }],
    ['/name', { name: 'example' }],
    ['/redirect_to', { name: 'example.com', redirect_to: '*.example.com' }],
    ['/redirect_to', { name: 'example.com', redirect_to: 'example.com' }],
  ])('is refused with a wrong %s', async (pointer, body) => {
    plain ??= await apps.make()
    const path = `/api/v1/deploy-servers/${server.id}/applications/${plain.id}/domains`
    const answer = await tenant.owner.ask('POST', path, body)
    const told = expect.arrayContaining([{ pointer, message: expect.any(String) }])
    expect([answer.status, answer.body['errors']]).toEqual([422, told])
  })
})

describeAcme('a domain with TLS', () => {
  let pebble: Pebble
  let address: string
  beforeAll(async () => {
    const [endpoint] = (await balancer()).endpoints
    address = endpoint?.host_address ?? ''
    pebble = await openPebble(address, endpoint?.ports[0]?.host_port ?? 0)
  })
  afterAll(() => pebble?.close())

  const served = async (name: string): Promise<string> =>
    servedTo(address, (await securePort()) ?? 0, name, await pebble.root())

  test('has a certificate, which ends with it', async () => {
    const app = await apps.make()
    const made = await Promise.all(
      [{ name: 'one.example.org' }, { name: 'two.example.org', redirect_to_https: false }].map((body) =>
        apps.addDomain(app.id, body),
      ),
    )
    for (const { operation } of made) await operation.success()
    const [one, two] = await Promise.all(made.map(({ id }) => apps.domain(app.id, id)))
    for (const domain of [one, two]) {
      expect(domain).toMatchObject({ status: 'active', certificate_id: expect.any(String) })
      const { fingerprint } = await certificate(domain?.certificate_id ?? '')
      expect(await served(domain?.name ?? '')).toBe(fingerprint)
    }
    const url = `https://one.example.org:${await securePort()}`
    expect(one).toMatchObject({ url, redirect_to_https: true })
    expect(await visit(at(app, 'one.example.org'), '/a?b=c')).toMatchObject({
      status: 308,
      location: `${url}/a?b=c`,
    })
    expect((await visit(at(app, 'two.example.org'))).text).toBe('v1')
    await (await apps.deploy(app.id, { tag: 'v2' })).operation.success()
    expect((await visit(at(app, 'one.example.org'))).status).toBe(308)
    expect((await visit(at(app, 'two.example.org'))).text).toBe('v2')
    await (await apps.removeDomain(app.id, one?.id ?? '')).operation.success()
    expect(await served('two.example.org')).toBe((await certificate(two?.certificate_id ?? '')).fingerprint)
    await (await apps.delete(app.id)).operation.success()
    expect(await securePort()).toBeUndefined()
    expect(await Certificate.countDocuments({ tenant_id: tenant.id })).toBe(0)
  })

  testDrawn(
    'that does not lead to the load balancer is served without, says why, and can be tried again',
    async () => {
      await pebble.resolve('lost.example.org', '127.0.0.99') // nothing listens there
      const app = await apps.make()
      const { id, operation } = await apps.addDomain(app.id, { name: 'lost.example.org' })
      expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'authority_refused' } })
      expect(await apps.domain(app.id, id)).toMatchObject({
        status: 'error',
        status_reason: expect.stringContaining('lost.example.org'),
      })
      expect((await visit(at(app, 'lost.example.org'))).text).toBe('v1')
      await pebble.resolve('lost.example.org', null)
      await (await apps.retryDomain(app.id, id)).operation.success()
      const { certificate_id, status } = await apps.domain(app.id, id)
      expect(status).toBe('active')
      expect(await served('lost.example.org')).toBe((await certificate(certificate_id)).fingerprint)
    },
  )

  testDrawn('that is cancelled while the authority does not answer is served without', async () => {
    const app = await apps.make()
    pebble.pause()
    const { id, operation } = await apps.addDomain(app.id, { name: 'late.example.org' })
    await eventually(async () => (await operation.now()).step === 'obtaining its certificate')
    await operation.cancel()
    pebble.resume()
    expect(await operation.end()).toMatchObject({ state: 'cancelled' })
    expect(await apps.domain(app.id, id)).toMatchObject({ status: 'error' })
    expect((await visit(at(app, 'late.example.org'))).text).toBe('v1')
    await (await apps.removeDomain(app.id, id)).operation.success()
  })

  testDrawn('is gone with its deploy server', async () => {
    await (await tenant.owner.deployServers.delete(server.id)).operation.success()
    expect(await Certificate.countDocuments({ tenant_id: tenant.id })).toBe(0)
  })
})

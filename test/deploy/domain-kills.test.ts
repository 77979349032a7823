import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { Domain } from '../../models/deploy/domains.ts'
import { Certificate } from '../../models/network/certificates.ts'
import { Route } from '../../models/network/load-balancer-routes.ts'
import { leftOf, nothingLeft, servedTo } from '../support/acme.ts'
import { loadAppImages } from '../support/app-images.ts'
import type { Accepted, DeployServerBody } from '../support/client.ts'
import { applicationsOf } from '../support/clients/applications.ts'
import { describeAcme } from '../support/describe-acme.ts'
import { eventually } from '../support/eventually.ts'
import { openPebble, type Pebble } from '../support/pebble.ts'
import { platform } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { visit } from '../support/visits.ts'

// If a process is killed (-9) while a domain is added or removed, it ends as requested: with one route and one
// certificate that is served, or with neither.

const roles = ['worker', 'host', 'api', 'temporal', 'mongodb'] as const
const name = 'killed.example.com'

describeAcme('a domain', () => {
  let tenant: TestTenant
  let server: DeployServerBody
  let apps: ReturnType<typeof applicationsOf>
  let app: { id: string; url: string }
  let pebble: Pebble
  let address: string
  beforeAll(async () => {
    tenant = await makeTenant()
    server = await tenant.owner.deployServers.make()
    await loadAppImages(tenant.owner, server)
    apps = applicationsOf(tenant.owner, server.id)
    app = await apps.make()
    const [endpoint] = (await tenant.owner.loadBalancers.get(server.lb_id)).endpoints
    address = endpoint?.host_address ?? ''
    pebble = await openPebble(address, endpoint?.ports[0]?.host_port ?? 0)
  })
  afterAll(() => pebble?.close())

  const securePort = async (): Promise<number | undefined> => {
    const { endpoints } = await tenant.owner.loadBalancers.get(server.lb_id)
    return endpoints[0]?.ports.find(({ port }) => port === 443)?.host_port
  }
  const routes = () => Route.countDocuments({ tenant_id: tenant.id, name })
  const certificates = () => Certificate.countDocuments({ tenant_id: tenant.id })
  const plainly = () => visit(`http://${name}:${new URL(app.url).port}`)

  /** Each resolves to whether the operation is there, or past it. */
  const adding = {
    'its workflow has begun': async () => true,
    'its route is made': routes,
    'its certificate is asked for': certificates,
    'the load balancer changes': securePort,
    'it is secured': () => Domain.exists({ tenant_id: tenant.id, secured: true }),
  }
  const removing = {
    'its workflow has begun': async () => true,
    'its route is deleted': async () => (await routes()) === 0,
    'the load balancer changes': async () => (await securePort()) === undefined,
    'its certificate is deleted': async () => (await certificates()) === 0,
  }

  async function killAt(
    reached: () => Promise<unknown>,
    role: (typeof roles)[number],
    { operation }: Accepted,
  ) {
    await eventually(async () => {
      const { state } = await operation.now()
      return state !== 'pending' && (state !== 'running' || Boolean(await reached()))
    })
    await platform.restartKilled(role)
    expect(await operation.end()).toMatchObject({ state: 'succeeded', error: null })
    expect(await leftOf(tenant)).toEqual(nothingLeft)
  }

  const pointsOf = (moments: object) =>
    Object.entries(moments as typeof adding).flatMap(([when, reached]) =>
      roles.map((role) => ({ when, reached, role })),
    )

  test.each(sampled(pointsOf(adding), 2))(
    'is added once, and served over HTTPS, if $role is killed when $when',
    async ({ reached, role }) => {
      const accepted = await apps.addDomain(app.id, { name })
      await killAt(reached, role, accepted)
      const { status, url, certificate_id } = await apps.domain(app.id, accepted.id)
      expect([status, await routes(), await certificates()]).toEqual(['active', 1, 1])
      expect(await plainly()).toMatchObject({ status: 308, location: `${url}/` })
      const { fingerprint } = await tenant.owner.certificates.get(certificate_id ?? '')
      const port = Number(new URL(url ?? '').port)
      expect(await servedTo(address, port, name, await pebble.root())).toBe(fingerprint)
      await (await apps.removeDomain(app.id, accepted.id)).operation.success()
    },
  )

  test.each(sampled(pointsOf(removing), 1))(
    'is removed, and leaves nothing, if $role is killed when $when',
    async ({ reached, role }) => {
      const { id, operation } = await apps.addDomain(app.id, { name })
      await operation.success()
      await killAt(reached, role, await apps.removeDomain(app.id, id))
      expect([await routes(), await certificates(), await securePort()]).toEqual([0, 0, undefined])
      expect(
        await tenant.owner.ask(
          'GET',
          `/api/v1/deploy-servers/${server.id}/applications/${app.id}/domains/${id}`,
        ),
      ).toMatchObject({ status: 404 })
      expect((await plainly()).status).toBe(404)
    },
  )
})

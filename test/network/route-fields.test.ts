import { text } from 'node:stream/consumers'
import { afterAll, beforeAll, expect, test } from '@jest/globals'
import { makeBackend } from '../support/base-images.ts'
import { type Authority, makeAuthority } from '../support/certificates.ts'
import type { Json } from '../support/client.ts'
import { describeHosts, first, second } from '../support/describe-hosts.ts'
import { docker } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { ask, target } from '../support/load-balancers.ts'
import { checkRoutes, ownGroups, type RouteCase, sharedGroups } from '../support/route-cases.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { uploadsOf } from '../support/uploaded-certificates.ts'
import { makeMember, makeSubnet, makeVpc } from '../support/vpcs.ts'

// Every field of a route, by requests through the platform's load balancer to containers on two hosts.

type Fields = RouteCase['routes'][number]

/** The fields of the interface. */
function bodyOf({ redirect, targets, ...same }: Fields): Json {
  const places = (targets ?? [target()]).map(({ address, port, weight }) => ({ address, port, weight }))
  return redirect
    ? { ...same, redirect_status: redirect.status, redirect_url: redirect.url }
    : { ...same, targets: places }
}
/** The engine can do more: the platform alone sets a target's state, and a prefix is rewritten only where one is matched. */
const isOfInterface = ([one]: RouteCase[]): boolean =>
  one?.routes.every(
    ({ targets = [], prefix_rewrite = null, path_match = null, path_match_type }) =>
      targets.every(({ state }) => state === 'active') &&
      (prefix_rewrite === null || (path_match !== null && path_match_type !== 'exact')),
  ) ?? false

describeHosts('a route to targets on two hosts', () => {
  let tenant: TestTenant
  let authority: Authority
  let lb: string
  let at: { address: string; port: number }
  const balancers = () => tenant.owner.loadBalancers

  beforeAll(async () => {
    tenant = await makeTenant()
    authority = await makeAuthority()
    await makeBackend()
    await text(await second.engine.loadImage(await docker.getImage('keelson/test-backend:1').get()))
    const { id: vpc } = await makeVpc(tenant, { cidr: '10.9.0.0/16' })
    const { id: subnet } = await makeSubnet(tenant, vpc, { cidr: '10.9.0.0/24' })
    const { cert, key } = await authority.issue(['backend.test'])
    const encoded = [key, cert].map((one) => Buffer.from(one).toString('base64'))
    const command = ['node', '/app/lb-backend.ts', ...encoded]
    const program = { image: 'keelson/test-backend:1', command, cpu_cores: 0.5, memory_mib: 256 }
    for (const [host, ...addresses] of [
      [first, '10.9.0.10', '10.9.0.12'],
      [second, '10.9.0.11'],
    ] as const) {
      await open([host])
      for (const ip_address of addresses) {
        const member = await makeMember(tenant, subnet, {
          ...program,
          nics: [{ subnet_id: subnet, ip_address }],
        })
        expect(member.host_id).toBe(host.id)
      }
    }
    await open([first])
    const made = await balancers().make(subnet)
    lb = made.id
    const [endpoint] = made.endpoints
    at = { address: endpoint?.host_address ?? '', port: endpoint?.ports[0]?.host_port ?? 0 }
  })
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })

  const isChecked = async (id: string): Promise<boolean> =>
    (await balancers().getRoute(lb, id)).targets.every(({ health_state }) => health_state !== 'unknown')

  /** Makes routes, waits until they serve, and removes them after `work`. */
  async function withRoutes(bodies: Json[], work: (ids: string[]) => Promise<void>): Promise<void> {
    const ids: string[] = []
    for (const body of bodies) ids.push((await balancers().addRoute(lb, body)).id)
    for (const id of ids) await eventually(() => isChecked(id))
    await work(ids)
    for (const id of ids) await tenant.owner.ask('DELETE', `/api/v1/load-balancers/${lb}/routes/${id}`)
  }

  test('does what each of its fields says', async () => {
    const shared = sharedGroups.filter(({ group }) => isOfInterface(group))
    const routes = shared.flatMap(({ host, group: [one] }) =>
      (one?.routes ?? []).map((fields) => bodyOf({ host_match: host, ...fields })),
    )
    await withRoutes(routes, async () => {
      for (const { host, group } of shared) await checkRoutes(at, group, host)
    })
  })

  test.each(ownGroups)('is taken by $name', async ({ group }) => {
    await withRoutes((group[0]?.routes ?? []).map(bodyOf), () => checkRoutes(at, group))
  })

  test('checks a target’s certificate against the trusted authority and the name', async () => {
    const { body } = await uploadsOf(tenant, authority).trust(authority.cert)
    const to = { ...bodyOf({ backend_port: 443, backend_tls: true }), backend_ca_trust_id: body['id'] }
    const good = { ...to, path_match: '/good', backend_sni: 'backend.test' }
    const wrong = { ...to, path_match: '/wrong', backend_sni: 'other.test' }
    await withRoutes([good, wrong], async () => {
      expect((await ask(at, '/good')).got?.sni).toBe('backend.test')
      expect((await ask(at, '/wrong')).status).toBe(503)
    })
  })

  test('keeps a client at its target by a cookie, until the target is removed', async () => {
    const targets = ['10.9.0.10', '10.9.0.11', '10.9.0.12'].map((address) => ({ address }))
    await withRoutes([{ sticky: true, targets }], async ([id = '']) => {
      const { got, headers } = await ask(at, '/')
      const cookie = String(headers['set-cookie']).split(';')[0] ?? ''
      for (let again = 0; again < 6; again++)
        expect((await ask(at, '/', { headers: { cookie } })).got?.address).toBe(got?.address)
      await balancers().changeRoute(lb, id, {
        targets: targets.filter(({ address }) => address !== got?.address),
      })
      await eventually(
        async () => (await ask(at, '/', { headers: { cookie } })).got?.address !== got?.address,
      )
    })
  })
})

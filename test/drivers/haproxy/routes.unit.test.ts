import { expect, test } from '@jest/globals'
import {
  applied,
  ask,
  authority,
  balancer,
  portOf,
  route,
  target,
  targetAddresses,
  withLoadBalancers,
} from '../../support/load-balancers.ts'
import { checkRoutes, ownGroups, sharedGroups } from '../../support/route-cases.ts'

// Every field of a route, by requests through a real HAProxy to a real target. HAProxy needs root, and nothing of the
// platform: hence `unit`.

withLoadBalancers('a route', () => {
  test('does what each of its fields says', async () => {
    const routes = sharedGroups.flatMap(({ host, group: [first] }) =>
      (first?.routes ?? []).map((fields) => route({ host_match: host, ...fields })),
    )
    const spec = balancer({ routes })
    const state = await applied(spec)
    expect(state.refused).toEqual([])
    const port = await portOf(spec.id)
    for (const { host, group } of sharedGroups) await checkRoutes(port, group, host)
  })

  test.each(ownGroups)('is taken by $name', async ({ group }) => {
    const spec = balancer({ routes: (group[0]?.routes ?? []).map((fields) => route(fields)) })
    const state = await applied(spec)
    expect(state.refused).toEqual([])
    await checkRoutes(await portOf(spec.id), group)
  })

  test('checks a target’s certificate against the trusted authority and the name', async () => {
    const trust = { id: 'trust', pem: authority.cert }
    const to = { backend_port: 443, backend_tls: true, backend_ca_trust_id: 'trust' }
    const spec = balancer({
      ca_trusts: [trust],
      routes: [
        route({ ...to, path_match: '/good', backend_sni: 'backend.test' }),
        route({ ...to, path_match: '/wrong', backend_sni: 'other.test' }),
      ],
    })
    await applied(spec)
    const port = await portOf(spec.id)
    expect((await ask(port, '/good')).got?.sni).toBe('backend.test')
    expect((await ask(port, '/wrong')).status).toBe(503)
  })

  test('keeps a client at its target by a cookie, until the target drains', async () => {
    const targets = targetAddresses.map((address) => target({ address }))
    const spec = balancer({ routes: [route({ sticky: true, targets })] })
    await applied(spec)
    const port = await portOf(spec.id)
    const first = await ask(port, '/')
    const cookie = String(first.headers['set-cookie']).split(';')[0] ?? ''
    expect(String(first.headers['set-cookie'])).toMatch(
      /^keelson_\w{8}=\w{16}; path=\/; HttpOnly; SameSite=Lax$/,
    )
    for (let again = 0; again < 6; again++) {
      const { got } = await ask(port, '/', { headers: { cookie } })
      expect(got?.address).toBe(first.got?.address)
      expect(got?.headers['cookie']).toBeUndefined()
    }
    const drained = targets.map((one) =>
      one.address === first.got?.address ? { ...one, state: 'draining' as const } : one,
    )
    await applied({ ...spec, routes: spec.routes.map((one) => ({ ...one, targets: drained })) })
    expect((await ask(port, '/', { headers: { cookie } })).got?.address).not.toBe(first.got?.address)
  })

  test('shares requests by weight: 90 to 10', async () => {
    const targets = [target({ weight: 90 }), target({ address: '10.9.0.11', weight: 10 })]
    const spec = balancer({ routes: [route({ targets })] })
    await applied(spec)
    const port = await portOf(spec.id)
    const counts = new Map<string, number>()
    for (let sent = 0; sent < 500; sent++) {
      const address = (await ask(port, '/')).got?.address ?? ''
      counts.set(address, (counts.get(address) ?? 0) + 1)
    }
    expect(Math.abs((counts.get('10.9.0.10') ?? 0) - 450)).toBeLessThanOrEqual(5)
  })
})

import { readdir, readFile } from 'node:fs/promises'
import { expect, test } from '@jest/globals'
import { makePlaces } from '../../../drivers/haproxy/places.ts'
import type { ListenerSpec, LoadBalancerSpec } from '../../../drivers/load-balancers.ts'
import { newId } from '../../../lib/ids.ts'
import { eventually } from '../../support/eventually.ts'
import {
  applied,
  ask,
  authority,
  balancer,
  balancers,
  certificateFor,
  portOf,
  route,
  settings,
  withLoadBalancers,
} from '../../support/load-balancers.ts'

// One part that HAProxy cannot use takes nothing else with it.

const listener = (port: number, ...certificate_ids: string[]): ListenerSpec => ({
  port,
  host_port: null,
  protocol: certificate_ids.length > 0 ? 'https' : 'http',
  certificate_ids,
  redirect_to_https: false,
})

async function unusable(): Promise<Record<string, string>> {
  const [one, other] = [await authority.issue(['a.test']), await authority.issue(['a.test'])]
  const weak = await authority.issue(['weak.test'], { key: 'short rsa' })
  return {
    'without a key': one.cert,
    'with the key of another': `${other.key}\n${one.cert}`,
    'that is no certificate': 'none',
    'that is damaged': `${one.key}\n${one.cert.replace(/[A-Za-z0-9+/]{64}\n/, '')}`,
    'too weak for HAProxy alone': `${weak.key}\n${weak.cert}`,
  }
}

const placeOf = (id: string) => makePlaces(settings.folder, settings.run)(id)

withLoadBalancers('a load balancer', () => {
  test('runs without certificates that cannot be used, and names them', async () => {
    const good = await certificateFor('good.test')
    const bad = Object.entries(await unusable()).map(([what, pem]) => ({ what, id: newId(), pem }))
    const unknown = newId()
    const ids = [...bad.map(({ id }) => id), unknown]
    const spec: LoadBalancerSpec = balancer({
      routes: [route()],
      certificates: [...bad, good].map(({ id, pem }) => ({ id, pem })),
      listeners: [listener(80), listener(443, ...ids, good.id), listener(8443, ...ids)],
    })
    const state = await applied(spec)
    expect(state.refused).toEqual([])
    const named = state.left_out.filter(({ kind }) => kind === 'certificate').map(({ id }) => id)
    expect(named.toSorted()).toEqual(ids.toSorted())
    expect(state.left_out.filter(({ kind }) => kind === 'listener')).toEqual([
      { kind: 'listener', id: '8443', reason: expect.stringContaining('no certificate') },
    ])
    expect(JSON.stringify(state)).not.toContain('PRIVATE KEY')
    expect(state.ports.map(({ port }) => port)).toEqual([80, 443])
    expect((await ask(await portOf(spec.id), '/')).status).toBe(200)
    const tls = { host: 'good.test', tls: {} }
    expect((await ask(await portOf(spec.id, 443), '/', tls)).status).toBe(200)

    // With a certificate that can be used, the listener is there at once.
    const now = await balancers.apply({
      ...spec,
      listeners: [...spec.listeners.slice(0, 2), listener(8443, good.id)],
    })
    expect(now.left_out.some(({ kind }) => kind === 'listener')).toBe(false)
    expect((await ask(await portOf(spec.id, 8443), '/', tls)).status).toBe(200)
  })

  test('keeps the certificate that it has while it cannot use the one that replaces it', async () => {
    const good = await certificateFor('good.test')
    const spec = balancer({
      routes: [route()],
      certificates: [good],
      listeners: [listener(80), listener(443, good.id)],
    })
    await applied(spec)
    const serves = async (): Promise<number> =>
      (await ask(await portOf(spec.id, 443), '/', { host: 'good.test', tls: {} })).status
    const others = await unusable()
    for (const [what, pem] of Object.entries(others)) {
      const { left_out, ports } = await balancers.apply({ ...spec, certificates: [{ id: good.id, pem }] })
      expect([what, left_out]).toEqual([
        what,
        [{ kind: 'certificate', id: good.id, reason: expect.stringContaining('still used') }],
      ])
      expect(ports.map(({ port }) => port)).toEqual([80, 443])
      expect(await serves()).toBe(200)
    }
    const master = Number(await readFile(placeOf(spec.id).pidFile, 'utf8'))
    process.kill(master, 'SIGKILL')
    await eventually(async () => {
      await balancers.mend()
      return (await serves()) === 200
    })

    const renewed = await certificateFor('good.test')
    const state = await balancers.apply({ ...spec, certificates: [{ ...renewed, id: good.id }] })
    expect(state.left_out).toEqual([])
    expect(await serves()).toBe(200)
    expect((await readdir(placeOf(spec.id).secrets)).toSorted()).toHaveLength(2)
  })

  test('refuses only the routes of a CA trust that cannot be used', async () => {
    const trusts = [
      { id: newId(), pem: authority.cert },
      { id: newId(), pem: 'none' },
      { id: newId(), pem: authority.cert.replace(/[A-Za-z0-9+/]{64}\n/, '') },
    ]
    const fields = { backend_tls: true, backend_port: 443, backend_sni: 'backend.test' }
    const routes = trusts.map(({ id }, index) =>
      route({ ...fields, backend_ca_trust_id: id, path_match: `/${index}` }),
    )
    const state = await applied(balancer({ routes, ca_trusts: trusts }))
    expect(state.left_out.map(({ kind, id }) => [kind, id])).toEqual(
      trusts.slice(1).map(({ id }) => ['ca_trust', id]),
    )
    expect(state.refused.map(({ route_id }) => route_id)).toEqual(routes.slice(1).map(({ id }) => id))
    expect((await ask(await portOf(state.id), '/0')).status).toBe(200)
  })

  test('runs without a listener that cannot be', async () => {
    const spec = balancer({
      routes: [route()],
      listeners: [listener(80), { ...listener(81), redirect_to_https: true }],
    })
    const { left_out } = await applied(spec)
    expect(left_out).toEqual([{ kind: 'listener', id: '81', reason: expect.stringContaining('HTTPS') }])
    expect((await ask(await portOf(spec.id), '/')).status).toBe(200)
  })
})

import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { CaTrust } from '../../models/network/ca-trusts.ts'
import { Route, routesAtMost } from '../../models/network/load-balancer-routes.ts'
import { type Authority, makeAuthority } from '../support/certificates.ts'
import type { Answer, Json } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import { mistakeAt } from '../support/refusals.ts'
import { publishedPort } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { uploadsOf } from '../support/uploaded-certificates.ts'
import { makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// Load balancers and their routes in the API: fields, rules and refusals.

let tenant: TestTenant
let subnet: string
let authority: Authority
let uploads: ReturnType<typeof uploadsOf>
beforeAll(async () => {
  tenant = await makeTenant({ max_vpcs: 100 })
  subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
  authority = await makeAuthority()
  uploads = uploadsOf(tenant, authority)
})

const ask = (method: string, path: string, body?: unknown): Promise<Answer> =>
  tenant.owner.ask(method, `/api/v1${path}`, body)
const unique = (kind: string): string => `${kind}-${newId().slice(-12)}`
const conflict = (code: string) => ({ status: 409, body: { code } })

const balancer = (over: Json = {}): Json => ({
  name: unique('lb'),
  subnet_id: subnet,
  listeners: [{ port: 80, protocol: 'http' }],
  ...over,
})
const create = (over?: Json): Promise<Answer> => ask('POST', '/load-balancers', balancer(over))

describe('a load balancer is refused', () => {
  const http = { port: 80, protocol: 'http' }
  const https = { port: 443, protocol: 'https' }

  test.each([
    ['without listeners', { listeners: [] }, '/listeners'],
    ['with a port twice', { listeners: [http, { ...http, protocol: 'tcp' }] }, '/listeners/1/port'],
    [
      'with a host port twice',
      {
        listeners: [
          { ...http, host_port: publishedPort(82) },
          { ...https, port: 81, protocol: 'tcp', host_port: publishedPort(82) },
        ],
      },
      '/listeners/1/host_port',
    ],
    ['with https without a certificate', { listeners: [https] }, '/listeners/0/certificate_ids'],
    [
      'with an unknown certificate',
      { listeners: [{ ...https, certificate_ids: [newId()] }] },
      '/listeners/0/certificate_ids/0',
    ],
    [
      'with a certificate of http',
      { listeners: [{ ...http, certificate_ids: [newId()] }] },
      '/listeners/0/certificate_ids',
    ],
    [
      'with a host port that is for the host’s own programs',
      { listeners: [{ ...http, host_port: 22 }] },
      '/listeners/0/host_port',
    ],
    [
      'with a host port between those of browsers',
      { listeners: [{ ...http, host_port: 442 }] },
      '/listeners/0/host_port',
    ],
    [
      'with a host port that no host publishes',
      { listeners: [{ ...http, host_port: 7080 }] },
      '/listeners/0/host_port',
    ],
    [
      'with a redirect to an https that is not there',
      { listeners: [{ ...http, redirect_to_https: true }] },
      '/listeners/0/redirect_to_https',
    ],
    [
      'with a health check that waits longer than it pauses',
      { health_check: { interval_sec: 1, timeout_sec: 5 } },
      '/health_check/timeout_sec',
    ],
    ['with a status of a TCP check', { health_check: { expect_status: 200 } }, '/health_check/expect_status'],
    ['with three replicas', { replicas: 3 }, '/replicas'],
    ['in an unknown subnet', { subnet_id: newId() }, '/subnet_id'],
    ['with a path that breaks the line', { health_check: { path: '/a\nb' } }, '/health_check/path'],
  ])('%s', async (_, over, pointer) => {
    expect(await create(over)).toMatchObject(mistakeAt(pointer))
  })

  test('in another tenant’s subnet, and with another tenant’s certificate', async () => {
    const other = await makeTenant()
    const theirs = await makeSubnet(other, (await makeVpc(other)).id)
    expect(await create({ subnet_id: theirs.id })).toMatchObject(mistakeAt('/subnet_id'))
    const id = await uploads.uploaded()
    const own = await makeSubnet(other, (await makeVpc(other)).id)
    const listeners = [{ port: 443, protocol: 'https', certificate_ids: [id] }]
    expect(
      await other.owner.ask('POST', '/api/v1/load-balancers', balancer({ subnet_id: own.id, listeners })),
    ).toMatchObject(mistakeAt('/listeners/0/certificate_ids/0'))
  })

  test('beyond the limit', async () => {
    const small = await makeTenant({ max_load_balancers: 0 })
    const own = await makeSubnet(small, (await makeVpc(small)).id)
    expect(
      await small.owner.ask('POST', '/api/v1/load-balancers', balancer({ subnet_id: own.id })),
    ).toMatchObject({ status: 409, body: { code: 'quota_exceeded', limit: 'max_load_balancers' } })
  })
})

describe('a route', () => {
  let lb: string
  let nic: string
  beforeAll(async () => {
    const { status, body } = await create()
    expect(status).toBe(202)
    lb = String(body['id'])
    const container = await tenant.containers.create({ start: false, nics: [{ subnet_id: subnet }] })
    await container.operation.success()
    nic = ((await tenant.containers.get(container.id)) as Member).nics[0]?.id ?? ''
  })
  const path = (): string => `/load-balancers/${lb}/routes`
  const target = { address: '10.0.0.200' }
  const route = (over: Json = {}): Promise<Answer> =>
    ask('POST', path(), {
      name: unique('route'),
      host_match: `${unique('h')}.example`,
      targets: [target],
      ...over,
    })

  test('has the fields of the interface', async () => {
    const { status, headers, body } = await route({ targets: [{ nic_id: nic, port: 8081, weight: 7 }] })
    expect(status).toBe(201)
    expect(headers.get('location')).toBe(`/api/v1${path()}/${String(body['id'])}`)
    expect(body).toEqual({
      id: expect.any(String),
      lb_id: lb,
      tenant_id: tenant.id,
      name: expect.any(String),
      tags: {},
      status: 'active',
      status_reason: null,
      priority: 100,
      host_match: expect.any(String),
      listener_port: null,
      path_match: null,
      path_match_type: 'prefix',
      method: null,
      prefix_rewrite: null,
      redirect_status: null,
      redirect_url: null,
      redirect_to_https: false,
      request_headers_add: {},
      request_headers_remove: [],
      response_headers_add: {},
      response_headers_remove: [],
      idle_timeout_sec: 60,
      request_timeout_sec: 60,
      backend_port: 80,
      backend_tls: false,
      backend_sni: null,
      backend_ca_trust_id: null,
      sticky: false,
      drain_timeout_sec: 30,
      targets: [
        {
          id: expect.any(String),
          address: expect.stringMatching(/^10\.0\.0\./),
          nic_id: nic,
          port: 8081,
          host_id: expect.any(String),
          weight: 7,
          health_state: 'unknown',
        },
      ],
      created_at: expect.any(String),
      updated_at: expect.any(String),
    })
    const { items } = await tenant.owner.get<{ items: Json[] }>(`/api/v1${path()}?limit=100`)
    expect(items).toContainEqual(body)
    expect(await tenant.owner.get(`/api/v1${path()}/${String(body['id'])}`)).toEqual(body)
  })

  test('is changed and deleted; a removed target drains', async () => {
    const { body } = await route({ targets: [target, { address: '10.0.0.201' }], drain_timeout_sec: 600 })
    const own = `${path()}/${String(body['id'])}`
    expect(await ask('PUT', own, { targets: [target], priority: 5 })).toMatchObject({
      status: 200,
      body: {
        priority: 5,
        targets: [
          { address: '10.0.0.200', health_state: 'unknown' },
          { address: '10.0.0.201', health_state: 'draining' },
        ],
      },
    })
    expect(await ask('PUT', own, { status: 'disabled' })).toMatchObject({ body: { status: 'disabled' } })
    expect(await ask('DELETE', own)).toMatchObject({ status: 204 })
    expect(await ask('GET', own)).toMatchObject({ status: 404 })
    expect(await ask('DELETE', own)).toMatchObject({ status: 404 })
  })

  test.each<[string, Json, string]>([
    ['without targets and redirect', { targets: [] }, '/targets'],
    ['with both', { redirect_status: 302, redirect_url: '/x' }, '/targets'],
    ['with a redirect without a URL', { targets: [], redirect_status: 302 }, '/redirect_url'],
    [
      'with a redirect of plain HTTP beside another',
      { targets: [], redirect_status: 302, redirect_url: '/x', redirect_to_https: true },
      '/redirect_to_https',
    ],
    ['with a redirect without a status', { targets: [], redirect_url: '/x' }, '/redirect_status'],
    ['with a status that is none of a redirect', { targets: [], redirect_status: 200 }, '/redirect_status'],
    ['with a target outside the VPC', { targets: [{ address: '192.168.0.1' }] }, '/targets/0/address'],
    ['with a target twice', { targets: [target, target] }, '/targets/1'],
    ['with a target that is nothing', { targets: [{}] }, '/targets/0'],
    ['with an unknown NIC', { targets: [{ nic_id: newId() }] }, '/targets/0/nic_id'],
    ['with a relative path', { path_match: 'shop' }, '/path_match'],
    ['with a path with a query', { path_match: '/shop?x' }, '/path_match'],
    ['with a regex bomb', { path_match: '(a+)+$', path_match_type: 'regex' }, '/path_match'],
    ['with a rewrite without a prefix', { prefix_rewrite: '/x' }, '/prefix_rewrite'],
    ['with an SNI without TLS', { backend_sni: 'a.example' }, '/backend_sni'],
    ['with an unknown CA trust', { backend_tls: true, backend_ca_trust_id: newId() }, '/backend_ca_trust_id'],
    ['with a host that is none', { host_match: 'a b' }, '/host_match'],
    ['with a wildcard inside', { host_match: 'a.*.example' }, '/host_match'],
    ['with a method that is none', { method: 'get' }, '/method'],
    ['with a header of the connection', { request_headers_remove: ['TE'] }, '/request_headers_remove/0'],
    [
      'with a header of the load balancer',
      { request_headers_add: { 'X-Forwarded-For': 'a' } },
      '/request_headers_add/X-Forwarded-For',
    ],
    [
      'with a header that breaks the line',
      { response_headers_add: { 'x-a': 'b\r\nc: d' } },
      '/response_headers_add/x-a',
    ],
  ])('%s is refused', async (_, over, pointer) => {
    expect(await route(over)).toMatchObject(mistakeAt(pointer))
  })

  test.each([
    ['/shop', 301],
    ['https://shop.example/', 302],
    ['https://{host}{path}', 308],
    ['https://shop.example{https_port}{path}', 308],
    ['http://shop.example:8080/x?y=1#z', 307],
    ['{path}', 303],
  ])('redirects to %s', async (redirect_url, redirect_status) => {
    expect(await route({ targets: [], redirect_url, redirect_status })).toMatchObject({ status: 201 })
  })

  test.each([
    'ftp://x',
    'javascript:x',
    '/a b',
    '/a"b',
    '/%[env(x)]\n',
    "/a'b",
    '//{other}',
    '/a\\b',
    '',
    '/{port}',
  ])('never redirects to %j', async (redirect_url) => {
    expect(await route({ targets: [], redirect_url, redirect_status: 302 })).toMatchObject(
      mistakeAt('/redirect_url'),
    )
  })

  test('that another one hides, or that hides another one, is refused', async () => {
    const host_match = `${unique('hidden')}.example`
    const first = await route({ host_match, priority: 10 })
    expect(await route({ host_match, priority: 20 })).toMatchObject(conflict('route_hidden'))
    expect(await route({ host_match, priority: 5 })).toMatchObject(conflict('route_hidden'))
    const narrow = await route({ host_match, priority: 5, path_match: '/a' })
    expect(narrow).toMatchObject({ status: 201 })
    expect(await ask('PUT', `${path()}/${String(narrow.body['id'])}`, { priority: 11 })).toMatchObject(
      conflict('route_hidden'),
    )
    const own = `${path()}/${String(first.body['id'])}`
    await ask('PUT', own, { status: 'disabled' })
    expect(await route({ host_match, priority: 20 })).toMatchObject({ status: 201 })
    expect(await ask('PUT', own, { status: 'active' })).toMatchObject(conflict('route_hidden'))
  })

  test('with a CA trust that the proxy cannot use is in error, and the activity feed says why', async () => {
    const { body: authorities } = await uploads.trust(authority.cert)
    const id = String(authorities['id'])
    const { body } = await route({ backend_tls: true, backend_ca_trust_id: id })
    // What the API would refuse, as if its checks had a gap.
    await CaTrust.updateOne({ tenant_id: tenant.id, _id: id }, { $set: { certificates_pem: 'damaged' } })
    await eventually(
      async () => (await ask('GET', `${path()}/${String(body['id'])}`)).body['status'] === 'error',
    )
    await eventually(async () =>
      (await tenant.owner.loadBalancers.activity(lb)).some(
        ({ kind, data }) => kind === 'ca_trust_refused' && (data as Json)['ca_trust_id'] === id,
      ),
    )
    await ask('DELETE', `${path()}/${String(body['id'])}`)
  })

  test('beyond the thousandth is refused', async () => {
    const other = String((await create()).body['id'])
    const own = `/load-balancers/${other}/routes`
    const { body } = await ask('POST', own, { name: 'first', targets: [target] })
    const known = await Route.findOne({ tenant_id: tenant.id, _id: String(body['id']) })
      .orFail()
      .lean()
    const others = Array.from({ length: routesAtMost - 1 }, (_, index) => ({
      ...known,
      _id: newId(),
      name: `route-${index}`,
      host_match: `h${index}.example`,
    }))
    await Route.insertMany(others.slice(1))
    const last = { name: 'last', host_match: 'last.example', targets: [target] }
    expect(await ask('POST', own, last)).toMatchObject({ status: 201 })
    expect(await ask('POST', own, { ...last, name: 'more', host_match: 'more.example' })).toMatchObject(
      conflict('too_many_routes'),
    )
    expect(await Route.countDocuments({ tenant_id: tenant.id, lb_id: other })).toBe(1000)
  })

  test('has a name of its own in its load balancer', async () => {
    const name = unique('route')
    expect(await route({ name })).toMatchObject({ status: 201 })
    expect(await route({ name })).toMatchObject(conflict('name_taken'))
  })

  test('keeps its CA trust, and the load balancer its subnet', async () => {
    const id = String((await uploads.trust(authority.cert)).body['id'])
    const own = await route({ backend_tls: true, backend_ca_trust_id: id })
    expect(await ask('DELETE', `/ca-trusts/${id}`)).toMatchObject(conflict('ca_trust_in_use'))
    await ask('DELETE', `${path()}/${String(own.body['id'])}`)
    await (await tenant.owner.begin('DELETE', `/api/v1/ca-trusts/${id}`)).operation.success()
    expect(await ask('DELETE', `/subnets/${subnet}`)).toMatchObject(conflict('subnet_in_use'))
  })
})

test('the deletion of a load balancer leaves no quota, routes or addresses behind', async () => {
  const other = await makeTenant()
  const own = await makeSubnet(other, (await makeVpc(other)).id)
  const { id, operation } = await other.owner.loadBalancers.create(own.id)
  await other.owner.loadBalancers.addRoute(id, { targets: [{ address: '10.0.0.99' }] })
  await operation.end()
  await (await other.owner.loadBalancers.delete(id)).operation.success()
  expect(await other.holds()).toEqual({ cpu_milli: 0, memory_mib: 0, reservations: 0 })
  expect(await other.owner.ask('GET', `/api/v1/load-balancers/${id}/routes`)).toMatchObject({ status: 404 })
  await (await other.owner.begin('DELETE', `/api/v1/subnets/${own.id}`)).operation.success()
})

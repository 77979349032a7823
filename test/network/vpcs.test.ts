import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import type { Json } from '../support/client.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// The operations on VPCs and subnets, and their refusals.

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant({ max_vpcs: 100 })
})

const ask = (method: string, path: string, body?: unknown) => tenant.owner.ask(method, `/api/v1${path}`, body)
const mistakeAt = (pointer: string) => ({
  status: 422,
  body: { code: 'invalid_input', errors: [expect.objectContaining({ pointer })] },
})

const numbered = (i: number): Json => ({ name: `vpc-${i}`, cidr: '10.0.0.0/16' })

describe('a VPC', () => {
  test('is available at once, and can be changed and deleted', async () => {
    const { id, name } = await makeVpc(tenant, { cidr: '172.16.0.0/20', tags: { a: 'b' } })
    const shown = {
      id,
      name,
      cidr: '172.16.0.0/20',
      status: 'available',
      tags: { a: 'b' },
      operation_id: null,
    }
    expect(await tenant.owner.get(`/api/v1/vpcs/${id}`)).toMatchObject(shown)
    expect(await tenant.owner.get(`/api/v1/vpcs?name=${String(name)}`)).toMatchObject({
      items: [{ id }],
      total: 1,
    })
    const other = `renamed-${id.slice(-12)}`
    expect(await ask('PUT', `/vpcs/${id}`, { name: other, tags: {} })).toMatchObject({
      status: 200,
      body: { name: other, tags: {}, cidr: '172.16.0.0/20' },
    })
    const { operation } = await tenant.owner.begin('DELETE', `/api/v1/vpcs/${id}`)
    await operation.success()
    expect(await ask('GET', `/vpcs/${id}`)).toMatchObject({ status: 404 })
  })

  test.each([
    '10.0.0.1/24',
    '8.8.8.0/24',
    '10.0.0.0/7',
    '10.0.0.0/29',
    '172.32.0.0/16',
    '10.0.0.0',
    'fd00::/64',
  ])('of %s is refused', async (cidr) => {
    expect(await ask('POST', '/vpcs', { name: 'x', cidr })).toMatchObject(mistakeAt('/cidr'))
  })

  test('needs a unique name', async () => {
    const { id, name } = await makeVpc(tenant)
    const taken = { status: 409, body: { code: 'name_taken' } }
    expect(await ask('POST', '/vpcs', { name, cidr: '10.0.0.0/24' })).toMatchObject(taken)
    const { name: second } = await makeVpc(tenant)
    expect(await ask('PUT', `/vpcs/${id}`, { name: second })).toMatchObject(taken)
  })

  test('with subnets cannot be deleted', async () => {
    const { id } = await makeVpc(tenant)
    await makeSubnet(tenant, id)
    expect(await ask('DELETE', `/vpcs/${id}`)).toMatchObject({ status: 409, body: { code: 'vpc_in_use' } })
    expect(await tenant.owner.get(`/api/v1/vpcs/${id}`)).toMatchObject({ status: 'available' })
  })

  test('beyond the limit is refused, also when many are created in parallel', async () => {
    const small = await makeTenant({ max_vpcs: 3 })
    const answers = await Promise.all(
      Array.from({ length: 10 }, (_, i) => small.owner.ask('POST', '/api/v1/vpcs', numbered(i))),
    )
    expect(answers.filter(({ status }) => status === 201)).toHaveLength(3)
    for (const answer of answers.filter(({ status }) => status !== 201))
      expect(answer).toMatchObject({
        status: 409,
        body: { code: 'quota_exceeded', limit: 'max_vpcs', allowed: 3 },
      })
    const { items } = await small.owner.get<{ items: { id: string }[] }>('/api/v1/vpcs')
    await (await small.owner.begin('DELETE', `/api/v1/vpcs/${items[0]?.id}`)).operation.success()
    expect(await small.owner.ask('POST', '/api/v1/vpcs', numbered(20))).toMatchObject({ status: 201 })
  })
})

describe('a subnet', () => {
  test('beyond the limit is refused, in whichever VPC', async () => {
    const small = await makeTenant({ max_subnets: 1 })
    const [first, second] = [await makeVpc(small), await makeVpc(small)]
    await makeSubnet(small, first.id)
    const body = { name: 'more', vpc_id: second.id, cidr: '10.0.0.0/24' }
    expect(await small.owner.ask('POST', '/api/v1/subnets', body)).toMatchObject({
      status: 409,
      body: { code: 'quota_exceeded', limit: 'max_subnets', allowed: 1 },
    })
  })

  let vpc: string
  beforeAll(async () => {
    ;({ id: vpc } = await makeVpc(tenant, { cidr: '10.1.0.0/16' }))
  })
  const subnet = (over: Json): Json => ({ name: `s-${newId().slice(-12)}`, vpc_id: vpc, ...over })

  test('has the first address as its gateway and nat, unless told otherwise', async () => {
    expect(await makeSubnet(tenant, vpc, { cidr: '10.1.0.0/24' })).toMatchObject({
      vpc_id: vpc,
      gateway_ip: '10.1.0.1',
      nat: true,
      dhcp_config: null,
      status: 'available',
    })
    const other = { cidr: '10.1.1.0/24', gateway_ip: '10.1.1.254', nat: false }
    expect(await makeSubnet(tenant, vpc, other)).toMatchObject(other)
  })

  test.each([
    ['outside of its VPC', { cidr: '10.2.0.0/24' }, '/cidr'],
    ['wider than its VPC', { cidr: '10.0.0.0/8' }, '/cidr'],
    ['not by its first address', { cidr: '10.1.9.7/24' }, '/cidr'],
    ['with a gateway elsewhere', { cidr: '10.1.9.0/24', gateway_ip: '10.1.8.1' }, '/gateway_ip'],
    [
      'with the last address as its gateway',
      { cidr: '10.1.9.0/24', gateway_ip: '10.1.9.255' },
      '/gateway_ip',
    ],
  ])('%s is refused', async (_, over, pointer) => {
    expect(await ask('POST', '/subnets', subnet(over))).toMatchObject(mistakeAt(pointer))
  })

  test('of another tenant’s VPC, or of none, is answered with 404', async () => {
    const other = await makeTenant()
    const theirs = await makeVpc(other)
    for (const vpc_id of [theirs.id, newId()])
      expect(await ask('POST', '/subnets', { ...subnet({ cidr: '10.0.0.0/24' }), vpc_id })).toMatchObject({
        status: 404,
      })
  })

  test('never overlaps another one in its VPC, also when many are created in parallel', async () => {
    const { id: vpc_id } = await makeVpc(tenant)
    const cidrs = ['10.0.0.0/24', '10.0.0.0/25', '10.0.0.128/26', '10.0.0.0/23', '10.0.0.64/26']
    const answers = await Promise.all(
      [...cidrs, ...cidrs].map((cidr) => ask('POST', '/subnets', { ...subnet({ cidr }), vpc_id })),
    )
    const made = answers.filter(({ status }) => status === 201).map(({ body }) => String(body['cidr']))
    expect(made.length).toBeGreaterThan(0)
    for (const answer of answers.filter(({ status }) => status !== 201))
      expect(answer).toMatchObject({ status: 409, body: { code: 'cidr_overlaps' } })
    const spans = made.map((cidr) => {
      const [address = '', prefix] = cidr.split('/')
      const [, , third, fourth] = address.split('.').map(Number)
      const first = (third ?? 0) * 256 + (fourth ?? 0)
      return { first, last: first + 2 ** (32 - Number(prefix)) - 1 }
    })
    for (const one of spans)
      for (const other of spans)
        if (one !== other) expect(one.first > other.last || other.first > one.last).toBe(true)
    const { id: elsewhere } = await makeVpc(tenant)
    await makeSubnet(tenant, elsewhere, { cidr: made[0] })
  })

  test('is changed by an operation, and deleted', async () => {
    const { id } = await makeSubnet(tenant, vpc, { cidr: '10.1.20.0/24' })
    const path = `/api/v1/subnets/${id}`
    const { operation, body } = await tenant.owner.begin('PUT', path, { nat: false, tags: { x: 'y' } })
    expect(body).toMatchObject({ status: 'updating', nat: false })
    await operation.success()
    expect(await tenant.owner.get(path)).toMatchObject({ status: 'available', nat: false, tags: { x: 'y' } })
    const { name } = await makeSubnet(tenant, vpc, { cidr: '10.1.21.0/24' })
    expect(await ask('PUT', `/subnets/${id}`, { name })).toMatchObject({
      status: 409,
      body: { code: 'name_taken' },
    })
    await (await tenant.owner.begin('DELETE', path)).operation.success()
    expect(await ask('GET', `/subnets/${id}`)).toMatchObject({ status: 404 })
  })
})

describe('a DHCP config', () => {
  let path: string
  beforeAll(async () => {
    const vpc = await makeVpc(tenant)
    path = `/subnets/${(await makeSubnet(tenant, vpc.id)).id}/dhcp-config`
  })
  const whole = {
    range_start: '10.0.0.100',
    range_end: '10.0.0.199',
    lease_time_sec: 600,
    dns_servers: ['9.9.9.9'],
    domain_name: 'shop.example',
    static_leases: [{ mac_address: '52:54:00:AA:BB:CC', ip_address: '10.0.0.50' }],
  }

  test('is attached, shown and detached', async () => {
    const { operation } = await tenant.owner.begin('POST', `/api/v1${path}`, whole)
    await operation.success()
    const subnet = path.replace('/dhcp-config', '')
    const shown = { ...whole, static_leases: [{ mac_address: '52:54:00:aa:bb:cc', ip_address: '10.0.0.50' }] }
    expect(await tenant.owner.get(`/api/v1${subnet}`)).toMatchObject({
      dhcp_config: shown,
      status: 'available',
    })
    await (await tenant.owner.begin('DELETE', `/api/v1${path}`)).operation.success()
    expect(await tenant.owner.get(`/api/v1${subnet}`)).toMatchObject({ dhcp_config: null })
  })

  test.each([
    ['a range without an end', { range_start: '10.0.0.5' }, '/range_end'],
    ['a range backwards', { range_start: '10.0.0.9', range_end: '10.0.0.5' }, '/range_end'],
    ['a range outside', { range_start: '10.0.1.5', range_end: '10.0.0.9' }, '/range_start'],
    [
      'a lease at the gateway',
      { static_leases: [{ mac_address: '52:54:00:00:00:01', ip_address: '10.0.0.1' }] },
      '/static_leases/0/ip_address',
    ],
    ['a lease too short', { lease_time_sec: 5 }, '/lease_time_sec'],
    ['a broken domain', { domain_name: 'no dots.' }, '/domain_name'],
    [
      'a multicast MAC address',
      { static_leases: [{ mac_address: '01:00:00:00:00:01', ip_address: '10.0.0.9' }] },
      '/static_leases/0/mac_address',
    ],
  ])('with %s is refused', async (_, body, pointer) => {
    const answer = await ask('POST', path, body)
    expect(answer).toMatchObject({ status: 422, body: { code: 'invalid_input' } })
    expect((answer.body['errors'] as { pointer: string }[]).map((error) => error.pointer)).toContain(pointer)
  })
})

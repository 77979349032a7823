import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { acceptanceOf, type By } from '../../models/acceptance.ts'
import { acceptContainer } from '../../models/compute/containers.ts'
import { acceptVm } from '../../models/compute/vms.ts'
import { acceptLoadBalancer } from '../../models/network/load-balancer-acceptance.ts'
import { createSubnet } from '../../models/network/subnets.ts'
import { createVpc } from '../../models/network/vpcs.ts'
import { type Accepted, Operation } from '../../models/operations.ts'
import { acceptDisk } from '../../models/storage/disk-acceptance.ts'
import type { Json } from '../support/client.ts'
import { refusedConsole } from '../support/console.ts'
import { eventually } from '../support/eventually.ts'
import { newContainer } from '../support/new-instances.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// What a deploy server makes for itself belongs to its tenant, who sees it and cannot change it.

const managed_by = newId()
let tenant: TestTenant
let by: By
const ids = { container: '', vm: '', disk: '', vpc: '', subnet: '', balancer: '' }

async function success<A extends Accepted>({ operation: { _id, tenant_id }, document }: A): Promise<string> {
  const ended = await eventually(() => Operation.findOne({ _id, tenant_id, open: { $exists: false } }).lean())
  expect(ended).toMatchObject({ state: 'succeeded', error: null })
  return document._id
}

beforeAll(async () => {
  tenant = await makeTenant()
  by = { tenant_id: tenant.id, id: null }
  const named = { name: 'one', tags: {}, managed_by }
  ids.vpc = (await createVpc(tenant.id, { ...named, cidr: '10.7.0.0/24' }))._id
  const within = { vpc_id: ids.vpc, cidr: '10.7.0.0/24', gateway_ip: null, nat: true }
  ids.subnet = (await createSubnet(tenant.id, { ...named, ...within }))._id
  const nics = [{ subnet_id: ids.subnet, ip_address: null }]
  ids.container = await success(await acceptContainer(by, { ...newContainer('one'), managed_by, nics }))
  const vm = { image: 'debian-12', cpu_cores: 1, memory_mib: 512, root_disk_gib: 3, log_cap_mib: 1 }
  const without = { disks: [], nics: [], ssh_keys: [], host_id: null, user_data: null, vpc_id: null }
  ids.vm = await success(await acceptVm(by, { ...named, ...vm, ...without, start: false }))
  const disk = { ...named, size_gib: 1, from_snapshot: null, host_id: null }
  ids.disk = await success(await acceptDisk(by, disk))
  const listener = { port: 80, host_port: null, protocol: 'http' as const }
  ids.balancer = await success(
    await acceptLoadBalancer(by, {
      ...named,
      name: 'balancer',
      subnet_id: ids.subnet,
      listeners: [{ ...listener, certificate_ids: [], redirect_to_https: false }],
      health_check: {
        path: null,
        interval_sec: 1,
        timeout_sec: 1,
        healthy_after: 1,
        unhealthy_after: 1,
        expect_status: null,
      },
      replicas: 1,
      log_cap_mib: 1,
    }),
  )
})

describe('what a deploy server manages', () => {
  test.each(['containers', 'vms', 'disks', 'vpcs', 'subnets', 'load-balancers'])(
    'is not in the list of %s, unless it is asked for',
    async (collection) => {
      const list = (query: string) =>
        tenant.owner.get<{ items: Json[]; total: number }>(`/api/v1/${collection}${query}`)
      expect(await list('')).toEqual({ items: [], total: 0 })
      expect(await list('?q=one&managed_by=null')).toEqual({ items: [], total: 0 })
      expect(await list(`?managed_by=${managed_by}`)).toMatchObject({ items: [{ managed_by }], total: 1 })
      expect(await list(`?managed_by=${newId()}`)).toEqual({ items: [], total: 0 })
    },
  )

  test('is shown by its id', async () => {
    expect(await tenant.containers.get(ids.container)).toMatchObject({ name: 'one', managed_by })
  })

  test('leaves its names to the tenant, whose own resources are counted alone', async () => {
    const { id, operation } = await tenant.containers.create({ name: 'one', start: false })
    await operation.success()
    expect(await tenant.owner.get('/api/v1/containers')).toMatchObject({
      items: [{ id, name: 'one', managed_by: null }],
      total: 1,
    })
  })

  const changes: [what: string, method: string, path: () => string, body: (() => Json) | null][] = [
    ['stopped', 'POST', () => `containers/${ids.container}/stop`, null],
    ['updated', 'PUT', () => `containers/${ids.container}`, () => ({ memory_mib: 64 })],
    [
      'given config vars',
      'PUT',
      () => `containers/${ids.container}/config-vars`,
      () => ({ config_vars: {} }),
    ],
    ['rescheduled', 'POST', () => `containers/${ids.container}/reschedule`, null],
    ['deleted', 'DELETE', () => `containers/${ids.container}`, null],
    ['given a disk', 'POST', () => `containers/${ids.container}/disks`, () => mountOf(ids.disk)],
    ['grown', 'PUT', () => `disks/${ids.disk}`, () => ({ size_gib: 2 })],
    ['deleted, a disk', 'DELETE', () => `disks/${ids.disk}`, null],
    ['renamed', 'PUT', () => `vpcs/${ids.vpc}`, () => ({ name: 'other' })],
    ['deleted, a subnet', 'DELETE', () => `subnets/${ids.subnet}`, null],
    ['deleted, a load balancer', 'DELETE', () => `load-balancers/${ids.balancer}`, null],
    [
      'given a route',
      'POST',
      () => `load-balancers/${ids.balancer}/routes`,
      () => ({ name: 'all', targets: [{ address: '10.7.0.9' }] }),
    ],
    [
      'joined by a subnet',
      'POST',
      () => 'subnets',
      () => ({ name: 'in', vpc_id: ids.vpc, cidr: '10.7.0.0/28' }),
    ],
    [
      'joined by a load balancer',
      'POST',
      () => 'load-balancers',
      () => ({ name: 'in', subnet_id: ids.subnet, listeners: [{ port: 80, protocol: 'http' }] }),
    ],
  ]
  test.each(changes)('cannot be %s by its tenant', async (_, method, path, body) => {
    const answer = await tenant.owner.ask(method, `/api/v1/${path()}`, body?.())
    expect(answer).toMatchObject({ status: 409, body: { code: 'managed', managed_by } })
  })

  test('takes no container of the tenant into its network, and gives it no disk', async () => {
    const joining = await tenant.owner.ask('POST', '/api/v1/containers', {
      name: 'in',
      image: 'busybox',
      cpu_cores: 0.1,
      memory_mib: 16,
      nics: [{ subnet_id: ids.subnet }],
    })
    expect(joining).toMatchObject({ status: 409, body: { code: 'managed' } })
    const own = await tenant.containers.create({ start: false })
    await own.operation.success()
    const attaching = await tenant.owner.ask('POST', `/api/v1/containers/${own.id}/disks`, mountOf(ids.disk))
    expect(attaching).toMatchObject({ status: 409, body: { code: 'managed' } })
  })

  test('has no console for its tenant', async () => {
    const refused = await refusedConsole(ids.container, { token: tenant.owner.token })
    expect(refused).toMatchObject({ status: 409, body: { code: 'managed' } })
  })

  test('is deleted by the platform', async () => {
    await success(await acceptanceOf('load_balancer', 'delete')(by, { id: ids.balancer }))
    await success(await acceptanceOf('container', 'delete')(by, { id: ids.container }))
    await success(await acceptanceOf('vm', 'delete')(by, { id: ids.vm }))
    await success(await acceptanceOf('disk', 'delete')(by, { id: ids.disk }))
    for (const collection of ['containers', 'vms', 'disks', 'load-balancers'])
      expect(await tenant.owner.get(`/api/v1/${collection}?managed_by=${managed_by}`)).toMatchObject({
        total: 0,
      })
  })
})

const mountOf = (disk_id: string): Json => ({ disk_id, mount_path: '/data' })

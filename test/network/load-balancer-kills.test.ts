import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { Names } from '../../drivers/linux/names.ts'
import { LoadBalancer, Replica } from '../../models/network/load-balancers.ts'
import { answers, nicOf, request, urlOf } from '../support/balanced.ts'
import { balancerTraces } from '../support/balancer-traces.ts'
import type { Accepted, LoadBalancerBody } from '../support/client.ts'
import { describeHosts, first, second } from '../support/describe-hosts.ts'
import { eventually } from '../support/eventually.ts'
import { closeFurther, open, type TestHost } from '../support/hosts.ts'
import { platform } from '../support/platform.ts'
import { sampled } from '../support/sampled.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeMember, makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// If a process is killed (-9) while a load balancer is created, changed, moved or deleted, it ends as requested and
// leaves no traces. The tests look at the machine and at what the proxy answers, not only at the records.

const roles = ['worker', 'host', 'api', 'temporal', 'mongodb'] as const
type Role = (typeof roles)[number]

let tenant: TestTenant
let subnet: string
let member: Member
/** What the tenant holds without load balancers. */
let held: Awaited<ReturnType<TestTenant['holds']>>
beforeAll(async () => {
  tenant = await makeTenant()
  subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
  member = await makeMember(tenant, subnet)
  held = await tenant.holds()
})

const killed = async (role: Role): Promise<void> => {
  await platform.kill(role)
  await platform.start(role)
}

/** Waits until the operation runs. */
const taken = ({ operation }: Accepted) => eventually(async () => (await operation.now()).state === 'running')
const namespaceOn = ({ id: hostId }: TestHost, id: string): string => `${new Names(hostId).prefix}l-${id}`
const namespaces = async (id: string): Promise<string[]> =>
  (await balancerTraces(id)).filter((trace) => trace.startsWith('/run/netns/'))
const hasProxy = async (id: string): Promise<boolean> =>
  (await balancerTraces(id)).some((trace) => trace.includes('haproxy.cfg'))
const toMember = () => ({ targets: [{ nic_id: nicOf(member) }] })

/** It runs on one host as its record says, answers requests there, and holds one replica's quota. */
async function expectRunning(id: string): Promise<LoadBalancerBody> {
  const lb = await eventually(async () => {
    const now = await tenant.owner.loadBalancers.get(id)
    return now.endpoints[0]?.state === 'running' && now
  })
  expect(lb).toMatchObject({ status: 'running', operation_id: null, status_reason: null })
  expect(lb.endpoints).toHaveLength(1)
  await answers(urlOf(lb), member.name)
  await eventually(async () => (await namespaces(id)).length === 1)
  expect(await namespaces(id)).toEqual([
    `/run/netns/${namespaceOn({ id: lb.endpoints[0]?.host_id } as TestHost, id)}`,
  ])
  expect((await tenant.holds()).reservations).toBe(held.reservations + 1)
  return lb
}

async function expectGone(id: string): Promise<void> {
  expect(await tenant.owner.ask('GET', `/api/v1/load-balancers/${id}`)).toMatchObject({ status: 404 })
  await eventually(async () => (await balancerTraces(id)).length === 0)
  expect(await LoadBalancer.countDocuments({ tenant_id: tenant.id, _id: id })).toBe(0)
  expect(await Replica.countDocuments({ tenant_id: tenant.id, load_balancer_id: id })).toBe(0)
  expect(await tenant.holds()).toEqual(held)
}

const remove = async (id: string): Promise<void> => {
  await (await tenant.owner.loadBalancers.delete(id)).operation.success()
  await expectGone(id)
}

async function make(): Promise<LoadBalancerBody> {
  const lb = await tenant.owner.loadBalancers.make(subnet)
  await tenant.owner.loadBalancers.addRoute(lb.id, toMember())
  await answers(urlOf(lb), member.name)
  return lb
}

describe('a create', () => {
  const moments = {
    'is accepted': taken,
    'has its namespace': ({ id }: Accepted) => eventually(async () => (await namespaces(id)).length > 0),
    'has its proxy': ({ id }: Accepted) => eventually(() => hasProxy(id)),
  }
  const points = Object.entries(moments).flatMap(([when, moment]) =>
    roles.map((role) => ({ role, when, moment })),
  )
  test.each(sampled(points, 2))('completes if $role is killed when it $when', async ({ role, moment }) => {
    const accepted = await tenant.owner.loadBalancers.create(subnet)
    await moment(accepted)
    await killed(role)
    expect(await accepted.operation.end()).toMatchObject({ state: 'succeeded', error: null })
    await tenant.owner.loadBalancers.addRoute(accepted.id, toMember())
    await expectRunning(accepted.id)
    await remove(accepted.id)
  })

  test('that is cancelled while its host does not answer leaves no trace', async () => {
    await platform.kill('host')
    const accepted = await tenant.owner.loadBalancers.create(subnet)
    await taken(accepted)
    await accepted.operation.cancel()
    await platform.start('host')
    expect((await accepted.operation.end()).state).toBe('cancelled')
    expect(await tenant.holds()).toEqual(held)
    await remove(accepted.id)
  })
})

/** Arguments of a request for this host. */
const named = (host: string): string[] => ['-H', `Host: ${host}`]

describe('routes', () => {
  test.each(sampled(roles, 2))('are as accepted although %s is killed between changes', async (role) => {
    const lb = await make()
    const [kept, dropped] = await Promise.all(
      ['kept.example', 'dropped.example'].map((host_match) =>
        tenant.owner.loadBalancers.addRoute(lb.id, {
          host_match,
          redirect_status: 307,
          redirect_url: 'http://before.example/',
        }),
      ),
    )
    await eventually(async () => (await request(urlOf(lb), ...named('kept.example'))).status === 307)
    const changes = await Promise.allSettled([
      tenant.owner.loadBalancers.changeRoute(lb.id, kept?.id ?? '', { redirect_status: 308 }),
      tenant.owner.loadBalancers.deleteRoute(lb.id, dropped?.id ?? ''),
      killed(role),
    ])
    expect(changes[2]).toMatchObject({ status: 'fulfilled' })
    // A change whose answer was lost may have been accepted or not: the proxy does what the records say.
    const { items } = await tenant.owner.get<{ items: { host_match: string; redirect_status: number }[] }>(
      `/api/v1/load-balancers/${lb.id}/routes?limit=100`,
    )
    for (const host of ['kept.example', 'dropped.example']) {
      const route = items.find(({ host_match }) => host_match === host)
      const status = route?.redirect_status ?? 200
      await eventually(async () => (await request(urlOf(lb), ...named(host))).status === status)
    }
    await expectRunning(lb.id)
    await remove(lb.id)
  })
})

describe('a deletion', () => {
  const moments = {
    'is accepted': taken,
    'has ended its proxy': ({ id }: Accepted) => eventually(async () => !(await hasProxy(id))),
  }
  const points = Object.entries(moments).flatMap(([when, moment]) =>
    roles.map((role) => ({ role, when, moment })),
  )
  test.each(sampled(points, 1))('completes if $role is killed when it $when', async ({ role, moment }) => {
    const lb = await make()
    const accepted = await tenant.owner.loadBalancers.delete(lb.id)
    await moment({ ...accepted, id: lb.id })
    await killed(role)
    expect(await accepted.operation.end()).toMatchObject({ state: 'succeeded', error: null })
    await expectGone(lb.id)
  })
})

describeHosts('a move', () => {
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })
  const moments = {
    'is accepted': taken,
    'has ended its proxy on its former host': ({ id }: Accepted) =>
      eventually(async () => !(await namespaces(id)).join().includes(namespaceOn(first, id))),
    'has its namespace on its new host': ({ id }: Accepted) =>
      eventually(async () => (await namespaces(id)).join().includes(namespaceOn(second, id))),
  }
  const points = Object.entries(moments).flatMap(([when, moment]) =>
    [...roles, 'host-2' as const].map((role) => ({ role, when, moment })),
  )
  test.each(sampled(points, 1))('completes if $role is killed when it $when', async ({ role, moment }) => {
    await open([first])
    const lb = await make()
    await open([first, second])
    const accepted = await tenant.owner.loadBalancers.reschedule(lb.id)
    await moment({ ...accepted, id: lb.id })
    await platform.kill(role)
    await platform.start(role)
    expect(await accepted.operation.end()).toMatchObject({ state: 'succeeded', error: null })
    const now = await expectRunning(lb.id)
    expect(now.endpoints[0]).toMatchObject({
      host_id: second.id,
      ip_address: lb.endpoints[0]?.ip_address,
    })
    await remove(lb.id)
  })
})

import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { makeAuthority } from '../support/certificates.ts'
import { answers, makeBalanced, nicOf, request, urlOf } from '../support/balanced.ts'
import { balancerTraces } from '../support/balancer-traces.ts'
import { eventually } from '../support/eventually.ts'
import { describeHosts, first, second } from '../support/describe-hosts.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { platform } from '../support/platform.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeMember, makeSubnet, makeVpc } from '../support/vpcs.ts'

// Requests through load balancers to containers on two hosts, and what happens when something ends.

let tenant: TestTenant
let subnet: string
beforeAll(async () => {
  tenant = await makeTenant({ max_vpcs: 100 })
  subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
})

const healthOf = async (lb: string, route: string): Promise<(string | undefined)[]> =>
  (await tenant.owner.loadBalancers.getRoute(lb, route)).targets.map(({ health_state }) => health_state)

describe('a load balancer', () => {
  test('sends requests to the instance of a NIC, and shows its health', async () => {
    const { lb, member, route } = await makeBalanced(tenant, subnet)
    expect(lb).toMatchObject({ status: 'running', endpoints: [{ state: 'running' }] })
    await eventually(async () => (await healthOf(lb.id, route)).join() === 'healthy')

    await (await tenant.containers.stop(member.id)).operation.success()
    await eventually(async () => (await request(urlOf(lb))).status === 503)
    await eventually(async () => (await healthOf(lb.id, route)).join() !== 'healthy')

    await (await tenant.containers.start(member.id)).operation.success()
    await answers(urlOf(lb), member.name)
  })

  test('answers https with its certificates, and redirects to it', async () => {
    const authority = await makeAuthority()
    const { cert, key } = await authority.issue(['shop.example'])
    const { body } = await tenant.owner.ask('POST', '/api/v1/certificates', {
      name: 'shop',
      certificate_pem: cert,
      private_key_pem: key,
    })
    const { lb, member } = await makeBalanced(tenant, subnet)
    const listeners = [
      { port: 80, protocol: 'http', redirect_to_https: true },
      { port: 443, protocol: 'https', certificate_ids: [body['id']] },
    ]
    await (await tenant.owner.loadBalancers.update(lb.id, { listeners })).operation.success()
    const now = await tenant.owner.loadBalancers.get(lb.id)
    await answers(urlOf(now, 443), member.name)
    expect((await request(urlOf(now))).status).toBeGreaterThanOrEqual(300)
    expect(urlOf(now)).toBe(urlOf(lb))
  })

  test('that cannot have its host port keeps what it had', async () => {
    const { lb, member } = await makeBalanced(tenant, subnet)
    const { lb: other } = await makeBalanced(tenant, subnet)
    const taken = other.endpoints[0]?.ports[0]?.host_port
    const listeners = [{ port: 80, protocol: 'http', host_port: taken }]
    const { operation } = await tenant.owner.loadBalancers.update(lb.id, { listeners })
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'port_in_use' } })
    expect(await tenant.owner.loadBalancers.get(lb.id)).toMatchObject({ status: 'running' })
    await answers(urlOf(lb), member.name)
  })

  test('leaves nothing behind when it is deleted', async () => {
    const { lb } = await makeBalanced(tenant, subnet)
    expect(await balancerTraces(lb.id)).not.toEqual([])
    await (await tenant.owner.loadBalancers.delete(lb.id)).operation.success()
    await eventually(async () => (await balancerTraces(lb.id)).length === 0)
  })

  test('keeps serving while its host’s worker is killed', async () => {
    const { lb, member } = await makeBalanced(tenant, subnet)
    await platform.kill('host')
    expect(await request(urlOf(lb))).toEqual({ status: 200, body: member.name })
    await platform.start('host')
    const other = await makeMember(tenant, subnet)
    await tenant.owner.loadBalancers.addRoute(lb.id, {
      host_match: 'other.example',
      targets: [{ nic_id: nicOf(other) }],
    })
    await answers(urlOf(lb), other.name, '-H', 'Host: other.example')
  })
})

describeHosts('with further hosts', () => {
  afterAll(async () => {
    await removeTenants()
    await closeFurther()
  })

  test('a load balancer has its replicas on two hosts, and either serves', async () => {
    await open([first, second])
    const { lb, member } = await makeBalanced(tenant, subnet, { replicas: 2 })
    expect(new Set(lb.endpoints.map(({ host_id }) => host_id)).size).toBe(2)
    await answers(urlOf(lb, 80, 0), member.name)
    await answers(urlOf(lb, 80, 1), member.name)
  })

  test('a load balancer has the port of browsers, of which a host has one', async () => {
    await open([second])
    const listeners = [{ port: 80, protocol: 'http', host_port: 80 }]
    const { lb, member } = await makeBalanced(tenant, subnet, { listeners })
    const [address] = lb.endpoints.map(({ host_address }) => host_address)
    await answers(`http://${address}`, member.name)
    const { operation } = await tenant.owner.loadBalancers.create(subnet, { listeners })
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'port_in_use' } })
    await (await tenant.owner.loadBalancers.delete(lb.id)).operation.success()
  })

  test('a load balancer moves to another host, and follows its targets', async () => {
    await open([first, second])
    const { lb, member } = await makeBalanced(tenant, subnet)
    const [before] = lb.endpoints
    await (await tenant.owner.loadBalancers.reschedule(lb.id)).operation.success()
    const now = await tenant.owner.loadBalancers.get(lb.id)
    expect(now.endpoints[0]?.host_id).not.toBe(before?.host_id)
    expect(now.endpoints[0]?.ip_address).toBe(before?.ip_address)
    await answers(urlOf(now), member.name)
    await (await tenant.containers.reschedule(member.id)).operation.success()
    await answers(urlOf(now), member.name)
  })

  test('a load balancer of a lost host comes up on another by itself', async () => {
    await open([second])
    const { lb, member } = await makeBalanced(tenant, subnet)
    expect(lb.endpoints[0]?.host_id).toBe(second.id)
    await open([first])
    await (await tenant.containers.reschedule(member.id)).operation.success()
    await platform.kill(second.roles.host)
    const moved = await eventually(async () => {
      const now = await tenant.owner.loadBalancers.get(lb.id)
      return now.endpoints[0]?.host_id === first.id && now.status === 'running' && now
    })
    await answers(urlOf(moved), member.name)
    const activity = await tenant.owner.loadBalancers.activity(lb.id)
    expect(activity.map(({ kind }) => kind)).toEqual(expect.arrayContaining(['unreachable', 'rescue']))
    await platform.start(second.roles.host)
    await (await tenant.owner.loadBalancers.delete(lb.id)).operation.success()
    await eventually(async () => (await balancerTraces(lb.id)).length === 0)
  })
})

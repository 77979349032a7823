import { execFile } from 'node:child_process'
import { readdir } from 'node:fs/promises'
import { promisify } from 'node:util'
import { afterAll, beforeAll, describe, expect, test } from '@jest/globals'
import { makeAuthority } from '../support/certificates.ts'
import type { Json, LoadBalancerBody } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import { describeHosts, first, hosts, second } from '../support/describe-hosts.ts'
import { closeFurther, open } from '../support/hosts.ts'
import { kernelTraces } from '../support/kernel-traces.ts'
import { platform } from '../support/platform.ts'
import { makeTenant, removeTenants, type TestTenant } from '../support/tenants.ts'
import { makeMember, makeSubnet, makeVpc, type Member } from '../support/vpcs.ts'

// Requests through load balancers to containers on two hosts, and what happens when something ends.

const run = promisify(execFile)

let tenant: TestTenant
let subnet: string
beforeAll(async () => {
  tenant = await makeTenant({ max_vpcs: 100 })
  subnet = (await makeSubnet(tenant, (await makeVpc(tenant)).id)).id
})

const nicOf = ({ nics }: Member): string => nics[0]?.id ?? ''

/** Where a listener is reached from this machine; the first replica's unless told otherwise. */
function urlOf({ endpoints }: LoadBalancerBody, port = 80, index = 0): string {
  const endpoint = endpoints[index]
  const bound = endpoint?.ports.find((one) => one.port === port)
  return `${bound?.protocol === 'https' ? 'https' : 'http'}://${endpoint?.host_address}:${bound?.host_port}`
}

/** The body and status of one request by curl, which needs no trust in our certificates. */
async function request(url: string, ...args: string[]): Promise<{ status: number; body: string }> {
  const { stdout } = await run('curl', ['-sk', '-m', '5', '-w', '\n%{http_code}', ...args, url])
  const lines = stdout.split('\n')
  return { status: Number(lines.pop()), body: lines.join('\n').trim() }
}

const answers = (url: string, body: string, ...args: string[]) =>
  eventually(async () => (await request(url, ...args)).body === body)

/** What the machine has of a load balancer, without our records. */
const traces = async (id: string): Promise<string[]> => [
  ...(await readdir('/run/netns')).filter((name) => name.includes(id)),
  ...(await kernelTraces(id)),
]

async function makeBalanced(
  over: Json = {},
): Promise<{ lb: LoadBalancerBody; member: Member; route: string }> {
  const member = await makeMember(tenant, subnet)
  const lb = await tenant.owner.loadBalancers.make(subnet, over)
  const { id: route } = await tenant.owner.loadBalancers.addRoute(lb.id, {
    targets: [{ nic_id: nicOf(member) }],
  })
  await answers(urlOf(lb), member.name)
  return { lb, member, route }
}

const healthOf = async (lb: string, route: string): Promise<(string | undefined)[]> =>
  (await tenant.owner.loadBalancers.getRoute(lb, route)).targets.map(({ health_state }) => health_state)

describe('a load balancer', () => {
  test('sends requests to the instance of a NIC, and shows its health', async () => {
    const { lb, member, route } = await makeBalanced()
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
    const { lb, member } = await makeBalanced()
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
    const { lb, member } = await makeBalanced()
    const { lb: other } = await makeBalanced()
    const taken = other.endpoints[0]?.ports[0]?.host_port
    const listeners = [{ port: 80, protocol: 'http', host_port: taken }]
    const { operation } = await tenant.owner.loadBalancers.update(lb.id, { listeners })
    expect(await operation.end()).toMatchObject({ state: 'failed', error: { code: 'port_in_use' } })
    expect(await tenant.owner.loadBalancers.get(lb.id)).toMatchObject({ status: 'running' })
    await answers(urlOf(lb), member.name)
  })

  test('leaves nothing behind when it is deleted', async () => {
    const { lb } = await makeBalanced()
    expect(await traces(lb.id)).not.toEqual([])
    await (await tenant.owner.loadBalancers.delete(lb.id)).operation.success()
    await eventually(async () => (await traces(lb.id)).length === 0)
  })

  test('keeps serving while its host’s worker is killed', async () => {
    const { lb, member } = await makeBalanced()
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
    const { lb, member } = await makeBalanced({ replicas: 2 })
    expect(new Set(lb.endpoints.map(({ host_id }) => host_id)).size).toBe(2)
    await answers(urlOf(lb, 80, 0), member.name)
    await answers(urlOf(lb, 80, 1), member.name)
  })

  test('a load balancer moves to another host, and follows its targets', async () => {
    await open([first, second])
    const { lb, member } = await makeBalanced()
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
    const { lb, member } = await makeBalanced()
    expect(lb.endpoints[0]?.host_id).toBe(second.id)
    await open([first])
    await (await tenant.containers.reschedule(member.id)).operation.success()
    const lostAt = Date.now()
    await platform.kill(second.roles.host)
    const moved = await eventually(async () => {
      const now = await tenant.owner.loadBalancers.get(lb.id)
      return now.endpoints[0]?.host_id === first.id && now.status === 'running' && now
    })
    await answers(urlOf(moved), member.name)
    expect(Date.now() - lostAt).toBeLessThan(60_000)
    const activity = await tenant.owner.loadBalancers.activity(lb.id)
    expect(activity.map(({ kind }) => kind)).toEqual(expect.arrayContaining(['unreachable', 'rescue']))
    await open(hosts)
    await platform.start(second.roles.host)
    await (await tenant.owner.loadBalancers.delete(lb.id)).operation.success()
    await eventually(async () => (await traces(lb.id)).length === 0)
  })
})

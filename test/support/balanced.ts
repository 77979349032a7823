import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import type { Json, LoadBalancerBody } from './client.ts'
import { eventually } from './eventually.ts'
import type { TestTenant } from './tenants.ts'
import { makeMember, type Member } from './vpcs.ts'

// Load balancers of the stack with containers behind them, and requests through them.

const run = promisify(execFile)

export const nicOf = ({ nics }: Member): string => nics[0]?.id ?? ''

/** Where a listener is reached from this machine; the first replica's unless told otherwise. */
export function urlOf({ endpoints }: LoadBalancerBody, port = 80, index = 0): string {
  const endpoint = endpoints[index]
  const bound = endpoint?.ports.find((one) => one.port === port)
  return `${bound?.protocol === 'https' ? 'https' : 'http'}://${endpoint?.host_address}:${bound?.host_port}`
}

/** The body and status of one request by curl, which needs no trust in our certificates. Status 0: no answer. */
export async function request(url: string, ...args: string[]): Promise<{ status: number; body: string }> {
  const ask = run('curl', ['-sk', '-m', '20', '-w', '\n%{http_code}', ...args, url])
  const { stdout } = await ask.catch(() => ({ stdout: '\n000' }))
  const lines = stdout.split('\n')
  return { status: Number(lines.pop()), body: lines.join('\n').trim() }
}

/** Waits until a request returns this body. */
export const answers = (url: string, body: string, ...args: string[]) =>
  eventually(async () => (await request(url, ...args)).body === body)

/** A load balancer whose one route leads to a container. */
export async function makeBalanced(
  tenant: TestTenant,
  subnet: string,
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

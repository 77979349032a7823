import { nicOf, urlOf } from './balanced.ts'
import type { Json, LoadBalancerBody, RouteBody } from './client.ts'
import { eventually } from './eventually.ts'
import type { TestTenant } from './tenants.ts'
import { makeMember, type Member } from './vpcs.ts'

// A load balancer of which some requests take a route, for what is seen of them.

export interface Served {
  lb: LoadBalancerBody
  member: Member
  route: RouteBody
}

/** Sends a request and returns its status. */
export async function send(url: string, path: string): Promise<number> {
  const answer = await fetch(`${url}${path}`, { redirect: 'manual' })
  await answer.arrayBuffer()
  return answer.status
}

/** Its route takes `/in`, which is 200, and what is below it, which is 404 from the container. All else takes no route. */
export async function makeServed(tenant: TestTenant, subnet: string, over: Json = {}): Promise<Served> {
  const member = await makeMember(tenant, subnet)
  const lb = await tenant.owner.loadBalancers.make(subnet, over)
  const route = await tenant.owner.loadBalancers.addRoute(lb.id, {
    path_match: '/in',
    prefix_rewrite: '/',
    targets: [{ nic_id: nicOf(member) }],
  })
  for (const index of lb.endpoints.keys())
    await eventually(async () => (await send(urlOf(lb, 80, index), '/in')) === 200)
  return { lb, member, route }
}

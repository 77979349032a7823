import { inTurn, lead, unroute, weighted } from './application-routes.ts'
import { hostLabelOf } from './compose/compose.ts'
import type { DeployServerDocument } from './deploy-servers.ts'
import { targetsAt } from './application-routes.ts'
import { Service, type ServiceDocument } from './services.ts'
import type { RouteTargets } from '../../drivers/load-balancers.ts'

// The routes of a service in the deploy server's load balancer: one for each port that its text opens.

/** The first part of a port's host name: the container's name; `web-9090` for a further port. */
export const hostPartOf = (container: string, port: number, ports: number[]): string =>
  ports[0] === undefined || ports[0] === port ? hostLabelOf(container) : `${hostLabelOf(container)}-${port}`

/** An application's host name has one part less, so that none is the same. */
export const serviceHostName = (
  hostPart: string,
  { name }: Pick<ServiceDocument, 'name'>,
  server: Pick<DeployServerDocument, '_id'>,
  domain: string,
): string => `${hostPart}.${name}.${server._id.slice(-12)}.${domain}`

/** Names of domains have no such end. */
const routeName = (hostPart: string, { name }: ServiceDocument): string => `${hostPart}.${name}.-service`

/** What a removed target has for the requests that are open. */
const drainSec = 10

/** How requests reach a service. */
export interface BalancedService {
  lb_id: string
  targets: RouteTargets[]
}

/**
 * Has a route lead to each port of the containers that are to run, and removes the service's other routes. Null if the
 * deploy server has no load balancer. Idempotent.
 */
export const routeService = (service: ServiceDocument, domain: string): Promise<BalancedService | null> =>
  inTurn(service.deploy_server_id, async (server, lb_id) => {
    const { _id, tenant_id, volume_node, wanted } = service
    const ip_address = server.nodes.find(({ name }) => name === volume_node)?.ip_address
    const open = ip_address
      ? service.containers
          .filter(({ name }) => name in wanted)
          .flatMap(({ ports }) => ports.map((one) => ({ ...one, ip_address })))
      : []
    const names = open.map(({ host }) => routeName(host, service))
    await Service.updateOne(
      { _id, tenant_id },
      { $set: { routes: [...new Set([...service.routes, ...names])] } },
    )
    const targets: RouteTargets[] = []
    for (const { host, port, machine_port, ip_address: address } of open) {
      const route = await lead(
        tenant_id,
        lb_id,
        { name: routeName(host, service), host_match: serviceHostName(host, service, server, domain) },
        {
          targets: weighted(server, [{ address, nic_id: null, port: machine_port }]),
          backend_port: port,
          drain_timeout_sec: drainSec,
        },
      )
      targets.push(targetsAt(route, [{ ip_address: address, machine_port }]))
    }
    for (const name of service.routes) if (!names.includes(name)) await unroute(tenant_id, lb_id, name)
    await Service.updateOne({ _id, tenant_id }, { $set: { routes: names } })
    return { lb_id, targets }
  })

import { NotFound } from '../../lib/problem.ts'
import {
  changeRoute,
  createRoute,
  deleteRoute,
  Route,
  type RouteFields,
} from '../network/load-balancer-routes.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Application, type ApplicationDocument } from './applications.ts'
import { findDeployments } from './deployments.ts'
import { DeployServer, type DeployServerDocument } from './deploy-servers.ts'

// The route of an application in the deploy server's load balancer: its targets are the replicas of a release.

/** The host name of an application, below the operator's domain. */
export const hostNameOf = (
  { name }: Pick<ApplicationDocument, 'name'>,
  server: Pick<DeployServerDocument, 'name' | '_id'>,
  domain: string,
): string => `${name}.${server._id.slice(-12)}.${domain}`

const weight = 100

/**
 * Has the route lead to the releases of these deployments; without any, deletes it. Removed targets keep their open
 * connections for the time that a replica may take to end. Returns the load balancer. Idempotent.
 */
export async function routeApplication(
  { _id, tenant_id, deploy_server_id, name, port, route_id, stop_grace_sec }: ApplicationDocument,
  deploymentIds: string[],
  domain: string,
): Promise<string | null> {
  const server = await DeployServer.findById(deploy_server_id).setOptions(everyTenant).lean()
  const lbId = server?.lb_id
  if (!server || !lbId) return null
  const deployments = await findDeployments(deploymentIds)
  const targets = deployments.flatMap(({ places }) =>
    places.flatMap(({ ip_address, machine_port }) =>
      machine_port === null ? [] : [{ address: ip_address, nic_id: null, port: machine_port, weight }],
    ),
  )
  if (targets.length === 0) {
    if (route_id === null) return lbId
    await Application.updateOne({ _id, tenant_id }, { $set: { route_id: null } })
    await deleteRoute(tenant_id, lbId, route_id).catch(unlessGone)
    return lbId
  }
  const its = { targets, backend_port: port ?? 80, drain_timeout_sec: stop_grace_sec }
  // A call that was killed may have made it.
  const there = route_id ?? (await Route.findOne({ tenant_id, lb_id: lbId, name }, { _id: 1 }).lean())?._id
  if (there) {
    await changeRoute(tenant_id, lbId, there, its)
    await Application.updateOne({ _id, tenant_id }, { $set: { route_id: there } })
    return lbId
  }
  const fields = { ...plain, ...its, name, host_match: hostNameOf({ name }, server, domain) }
  const route = await createRoute(tenant_id, lbId, fields)
  await Application.updateOne({ _id, tenant_id }, { $set: { route_id: route._id } })
  return lbId
}

const unlessGone = (error: unknown): void => {
  if (!(error instanceof NotFound)) throw error
}

const plain: Omit<RouteFields, 'name' | 'host_match' | 'targets' | 'backend_port' | 'drain_timeout_sec'> = {
  tags: {},
  status: 'active',
  priority: 100,
  path_match: null,
  path_match_type: 'prefix',
  method: null,
  prefix_rewrite: null,
  redirect_status: null,
  redirect_url: null,
  request_headers_add: {},
  request_headers_remove: [],
  response_headers_add: {},
  response_headers_remove: [],
  idle_timeout_sec: 60,
  request_timeout_sec: 60,
  backend_tls: false,
  backend_sni: null,
  backend_ca_trust_id: null,
  sticky: false,
}

import type { RouteTargets } from '../../drivers/load-balancers.ts'
import { NotFound } from '../../lib/problem.ts'
import {
  changeRoute,
  createRoute,
  deleteRoute,
  Route,
  type RouteDocument,
  type RouteFields,
} from '../network/load-balancer-routes.ts'
import { everyTenant } from '../tenant-scope.ts'
import { Application, type ApplicationDocument } from './applications.ts'
import { findDeployments, type Place } from './deployments.ts'
import { DeployServer, type DeployServerDocument } from './deploy-servers.ts'

// The route of an application in the deploy server's load balancer: its targets are the replicas of a release.

/** The host name of an application, below the operator's domain. */
export const hostNameOf = (
  { name }: Pick<ApplicationDocument, 'name'>,
  server: Pick<DeployServerDocument, 'name' | '_id'>,
  domain: string,
): string => `${name}.${server._id.slice(-12)}.${domain}`

const weight = 100

/** The load balancer of an application. */
export interface Balanced {
  lb_id: string
  /** The targets of the newest of its deployments. Null without a route. */
  targets: RouteTargets | null
}

/**
 * Has the route lead to the releases of these deployments; without any, deletes it. Removed targets keep their open
 * connections for the time that a replica may take to end. Null if the deploy server has no load balancer. Idempotent.
 */
export async function routeApplication(
  { _id, tenant_id, deploy_server_id, name, port, route_id, stop_grace_sec }: ApplicationDocument,
  deploymentIds: string[],
  domain: string,
): Promise<Balanced | null> {
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
    if (route_id === null) return { lb_id: lbId, targets: null }
    await Application.updateOne({ _id, tenant_id }, { $set: { route_id: null } })
    await deleteRoute(tenant_id, lbId, route_id).catch(unlessGone)
    return { lb_id: lbId, targets: null }
  }
  const its = { targets, backend_port: port ?? 80, drain_timeout_sec: stop_grace_sec }
  // A call that was killed may have made it.
  const there = route_id ?? (await Route.findOne({ tenant_id, lb_id: lbId, name }, { _id: 1 }).lean())?._id
  const host_match = hostNameOf({ name }, server, domain)
  const route = there
    ? await changeRoute(tenant_id, lbId, there, its)
    : await createRoute(tenant_id, lbId, { ...plain, ...its, name, host_match })
  await Application.updateOne({ _id, tenant_id }, { $set: { route_id: route._id } })
  const newest = deployments.find((one) => one._id === deploymentIds.at(-1))
  return { lb_id: lbId, targets: targetsAt(route, newest?.places ?? []) }
}

/** The targets of a route that lead to these places. */
export const targetsAt = (
  { _id, targets }: Pick<RouteDocument, '_id' | 'targets'>,
  places: Pick<Place, 'ip_address' | 'machine_port'>[],
): RouteTargets => ({
  route_id: _id,
  target_ids: targets
    .filter(({ address, port }) =>
      places.some(({ ip_address, machine_port }) => ip_address === address && machine_port === port),
    )
    .map(({ id }) => id),
})

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

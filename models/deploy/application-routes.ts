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
import { type DomainDocument, domainsOf } from './domains.ts'
import { DeployServer, type DeployServerDocument } from './deploy-servers.ts'

// The route of an application in the deploy server's load balancer: its targets are the replicas of a release.

/** The host name of an application, below the operator's domain. */
export const hostNameOf = (
  { name }: Pick<ApplicationDocument, 'name'>,
  server: Pick<DeployServerDocument, 'name' | '_id'>,
  domain: string,
): string => `${name}.${server._id.slice(-12)}.${domain}`

const weightOfEach = 100

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
  application: ApplicationDocument,
  deploymentIds: string[],
  domain: string,
): Promise<Balanced | null> {
  const { _id, tenant_id, deploy_server_id, name, port, route_id, stop_grace_sec } = application
  const server = await DeployServer.findById(deploy_server_id).setOptions(everyTenant).lean()
  const lbId = server?.lb_id
  if (!server || !lbId) return null
  const deployments = await findDeployments(deploymentIds)
  const targets = deployments.flatMap(({ places }) =>
    places.flatMap(({ ip_address, machine_port }) =>
      machine_port === null
        ? []
        : [{ address: ip_address, nic_id: null, port: machine_port, weight: weightOfEach }],
    ),
  )
  if (targets.length === 0) {
    if (route_id !== null) await Application.updateOne({ _id, tenant_id }, { $set: { route_id: null } })
    await unroute(tenant_id, lbId, name)
    for (const one of await leadingDomains(application)) await unroute(tenant_id, lbId, one.name)
    return { lb_id: lbId, targets: null }
  }
  const its = { targets, backend_port: port ?? 80, drain_timeout_sec: stop_grace_sec }
  const route = await lead(tenant_id, lbId, { name, host_match: hostNameOf({ name }, server, domain) }, its)
  await Application.updateOne({ _id, tenant_id }, { $set: { route_id: route._id } })
  for (const one of await leadingDomains(application)) await lead(tenant_id, lbId, firstFieldsOf(one), its)
  const newest = deployments.find((one) => one._id === deploymentIds.at(-1))
  return { lb_id: lbId, targets: targetsAt(route, newest?.places ?? []) }
}

type Leading = Partial<
  Pick<
    RouteFields,
    | 'targets'
    | 'backend_port'
    | 'drain_timeout_sec'
    | 'redirect_status'
    | 'redirect_url'
    | 'redirect_to_https'
  >
>

/**
 * The domains that lead to the application. Read after its own route has changed: a domain that is made meanwhile is either
 * among them, or conflicts with that change and sees its targets.
 */
const leadingDomains = async (application: ApplicationDocument): Promise<DomainDocument[]> =>
  (await domainsOf(application)).filter(({ redirect_to }) => redirect_to === null)

type First = Pick<RouteFields, 'name' | 'host_match'> & Partial<RouteFields>

/** Makes the route of this name, or changes it: a call that was killed may have made it. */
async function lead(tenant_id: string, lb_id: string, first: First, its: Leading): Promise<RouteDocument> {
  const there = await Route.findOne({ tenant_id, lb_id, name: first.name }, { _id: 1 }).lean()
  if (there) return changeRoute(tenant_id, lb_id, there._id, its)
  return createRoute(tenant_id, lb_id, { ...plain, ...first, ...its })
}

const firstFieldsOf = ({ name, secured, redirect_to_https }: DomainDocument) => ({
  name,
  host_match: name,
  redirect_to_https: secured && redirect_to_https,
})

async function unroute(tenant_id: string, lb_id: string, name: string): Promise<void> {
  const there = await Route.findOne({ tenant_id, lb_id, name }, { _id: 1 }).lean()
  if (there) await deleteRoute(tenant_id, lb_id, there._id).catch(unlessGone)
}

/** Routes a domain: a redirect, or the targets that its application has now. */
export async function routeDomain(
  { tenant_id, route_id }: ApplicationDocument,
  domain: DomainDocument,
): Promise<void> {
  const { name, redirect_to, tls, deploy_server_id } = domain
  const server = await DeployServer.findOne({ _id: deploy_server_id, tenant_id }).lean()
  if (!server?.lb_id) return
  if (redirect_to !== null) {
    const scheme = tls ? 'https' : 'http'
    const redirect_url = `${scheme}://${redirect_to}{${scheme}_port}{path}`
    const first = { name, host_match: name }
    await lead(tenant_id, server.lb_id, first, { redirect_status: 308, redirect_url })
    return
  }
  const main = route_id === null ? null : await Route.findOne({ _id: route_id, tenant_id }).lean()
  if (!main) return // its next release routes it
  const { targets, backend_port, drain_timeout_sec } = main
  const bare = targets.map(({ address, nic_id, port, weight }) => ({ address, nic_id, port, weight }))
  const first = firstFieldsOf(domain)
  const { redirect_to_https } = first
  await lead(tenant_id, server.lb_id, first, {
    targets: bare,
    backend_port,
    drain_timeout_sec,
    redirect_to_https,
  })
}

/** Removes the route of a domain. */
export async function unrouteDomain({ tenant_id, deploy_server_id, name }: DomainDocument): Promise<void> {
  const server = await DeployServer.findOne({ _id: deploy_server_id, tenant_id }).lean()
  if (server?.lb_id) await unroute(tenant_id, server.lb_id, name)
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

const plain: Omit<RouteFields, 'name' | 'host_match'> = {
  targets: [],
  backend_port: 80,
  drain_timeout_sec: 0,
  tags: {},
  status: 'active',
  priority: 100,
  path_match: null,
  path_match_type: 'prefix',
  method: null,
  prefix_rewrite: null,
  redirect_status: null,
  redirect_url: null,
  redirect_to_https: false,
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

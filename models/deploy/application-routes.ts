import type { RouteTargets } from '../../drivers/load-balancers.ts'
import { NotFound, StateConflict } from '../../lib/problem.ts'
import {
  changeRoute,
  createRoute,
  deleteRoute,
  holding,
  Route,
  type RouteDocument,
  type RouteFields,
  type TargetRecord,
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

type BareTarget = Omit<TargetRecord, 'id' | 'weight'>

/** Weighs targets: workers at rest are sent nothing, if others are there. */
export function weighted(
  { nodes }: Pick<DeployServerDocument, 'nodes'>,
  targets: BareTarget[],
): RouteFields['targets'] {
  const resting = nodes.filter((node) => node.resting).map(({ ip_address }) => ip_address)
  const rests = ({ address }: BareTarget): boolean => resting.includes(address ?? '')
  const all = targets.every(rests)
  return targets.map((target) => ({ ...target, weight: rests(target) && !all ? 0 : weightOfEach }))
}

/** Whether requests may still be open at workers that rest. */
export interface Rest {
  lb_id: string
  /** The longest time that an open request to them may take; null if none of them rests where others serve. */
  drain_sec: number | null
}

/**
 * Weighs the targets of all applications anew, after a worker has come to rest or is back. Null without a load balancer.
 * Idempotent.
 */
export const weighTargets = (deployServerId: string): Promise<Rest | null> => inTurn(deployServerId, weigh)

async function weigh(server: DeployServerDocument, lb_id: string): Promise<Rest> {
  const { tenant_id } = server
  let drain_sec: number | null = null
  for (const { _id, targets, drain_timeout_sec } of await Route.find({ tenant_id, lb_id }).lean()) {
    const next = weighted(server, targets.map(bare))
    if (next.some(({ weight }) => weight === 0)) drain_sec = Math.max(drain_sec ?? 0, drain_timeout_sec)
    if (next.every(({ weight }, index) => weight === targets[index]?.weight)) continue
    await changeRoute(tenant_id, lb_id, _id, { targets: next })
  }
  return { lb_id, drain_sec }
}

/**
 * Sends requests again to workers that were left at rest: an operator has terminated the operation that would have done
 * so. Called again and again.
 */
export async function endLeftRests(): Promise<void> {
  const atRest = { operation_id: null, 'nodes.resting': true, lb_id: { $ne: null } }
  const left = await DeployServer.find(atRest, { _id: 1 }).setOptions(everyTenant).lean()
  for (const { _id } of left)
    await inTurn(_id, async (server, lbId) => {
      const still = { _id, tenant_id: server.tenant_id, operation_id: null }
      const woken = await DeployServer.findOneAndUpdate(
        still,
        { $set: { 'nodes.$[].resting': false } },
        { returnDocument: 'after' },
      ).lean()
      if (woken) await weigh(woken, lbId)
    }).catch(unlessClosed)
}

/** A load balancer that is being deleted sends no requests anywhere. */
const unlessClosed = (error: unknown): void => {
  if (!(error instanceof StateConflict)) unlessGone(error)
}

const bare = ({ address, nic_id, port }: TargetRecord): BareTarget => ({ address, nic_id, port })

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
  const { deploy_server_id } = application
  return inTurn(deploy_server_id, (server, lbId) => routeAt(server, lbId, application, deploymentIds, domain))
}

/**
 * Runs `work` while no one else changes the load balancer of the deploy server. It has the server's record as it is
 * then. Null without a load balancer.
 */
export async function inTurn<T>(
  id: string,
  work: (server: DeployServerDocument, lbId: string) => Promise<T>,
): Promise<T | null> {
  const known = await DeployServer.findById(id).setOptions(everyTenant).lean()
  if (!known?.lb_id) return null
  const { tenant_id, lb_id } = known
  return holding(tenant_id, lb_id, async () => {
    const server = await DeployServer.findOne({ _id: id, tenant_id }).lean()
    return server?.lb_id === lb_id ? work(server, lb_id) : null
  })
}

async function routeAt(
  server: DeployServerDocument,
  lbId: string,
  application: ApplicationDocument,
  deploymentIds: string[],
  domain: string,
): Promise<Balanced> {
  const { _id, tenant_id, name, port, route_id, stop_grace_sec } = application
  const deployments = await findDeployments(deploymentIds)
  const targets = weighted(
    server,
    deployments.flatMap(({ places }) =>
      places.flatMap(({ ip_address, machine_port }) =>
        machine_port === null ? [] : [{ address: ip_address, nic_id: null, port: machine_port }],
      ),
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
 * The domains that lead to the application. Read in the load balancer's turn: a domain that is made meanwhile is either
 * among them, or routed in a later turn, where it finds the application's new targets.
 */
const leadingDomains = async (application: ApplicationDocument): Promise<DomainDocument[]> =>
  (await domainsOf(application)).filter(({ redirect_to }) => redirect_to === null)

type First = Pick<RouteFields, 'name' | 'host_match'> & Partial<RouteFields>

/** Makes the route of this name, or changes it: a call that was killed may have made it. */
export async function lead(
  tenant_id: string,
  lb_id: string,
  first: First,
  its: Leading,
): Promise<RouteDocument> {
  const there = await Route.findOne({ tenant_id, lb_id, name: first.name }, { _id: 1 }).lean()
  if (there) return changeRoute(tenant_id, lb_id, there._id, its)
  return createRoute(tenant_id, lb_id, { ...plain, ...first, ...its })
}

const firstFieldsOf = ({ name, secured, redirect_to_https }: DomainDocument) => ({
  name,
  host_match: name,
  redirect_to_https: secured && redirect_to_https,
})

export async function unroute(tenant_id: string, lb_id: string, name: string): Promise<void> {
  const there = await Route.findOne({ tenant_id, lb_id, name }, { _id: 1 }).lean()
  if (there) await deleteRoute(tenant_id, lb_id, there._id).catch(unlessGone)
}

/** Routes a domain: a redirect, or the targets that its application has now. */
export async function routeDomain(
  { _id, tenant_id }: ApplicationDocument,
  domain: DomainDocument,
): Promise<void> {
  const { name, redirect_to, tls, deploy_server_id } = domain
  await inTurn(deploy_server_id, async (server, lbId) => {
    if (redirect_to !== null) {
      const scheme = tls ? 'https' : 'http'
      const redirect_url = `${scheme}://${redirect_to}{${scheme}_port}{path}`
      const first = { name, host_match: name }
      await lead(tenant_id, lbId, first, { redirect_status: 308, redirect_url })
      return
    }
    const { route_id = null } = (await Application.findOne({ _id, tenant_id }).lean()) ?? {}
    const main = route_id === null ? null : await Route.findOne({ _id: route_id, tenant_id }).lean()
    if (!main) return // its next release routes it
    const { targets, backend_port, drain_timeout_sec } = main
    const first = firstFieldsOf(domain)
    const { redirect_to_https } = first
    const its = { targets: weighted(server, targets.map(bare)), backend_port, drain_timeout_sec }
    await lead(tenant_id, lbId, first, { ...its, redirect_to_https })
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
  listener_port: null,
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

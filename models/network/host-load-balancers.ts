import { createHash } from 'node:crypto'
import type { RouteSpec, TargetSpec } from '../../drivers/load-balancers.ts'
import type { HostLoadBalancer, HostLoadBalancers } from '../../lib/load-balancer-protocol.ts'
import { findInstances } from '../compute/instance-kinds.ts'
import { everyTenant } from '../tenant-scope.ts'
import { CaTrust } from './ca-trusts.ts'
import { challengesOf } from './certificate-orders.ts'
import { Certificate, openCertificate } from './certificates.ts'
import { Route, type RouteDocument, type TargetRecord } from './load-balancer-routes.ts'
import { LoadBalancer, type LoadBalancerDocument, Replica } from './load-balancers.ts'
import { Nic } from './nics.ts'

// The wanted load balancers of a host. Like its networks, they are sent as a whole.

type Described = Omit<HostLoadBalancer, 'certificates'>

/** The wanted load balancers of a host, with private keys. */
export async function loadBalancersOf(hostId: string): Promise<HostLoadBalancers> {
  const { version, described } = await describe(hostId)
  const ids = [...new Set(described.flatMap(certificateIds))]
  const certificates = await Certificate.find({ _id: { $in: ids } })
    .setOptions(everyTenant)
    .lean()
  const pems = await Promise.all(
    certificates.map(async (one) => [one._id, await openCertificate(one)] as const),
  )
  const opened = new Map(pems)
  return {
    version,
    load_balancers: described.map((one) => ({
      ...one,
      certificates: certificateIds(one).flatMap((id) => {
        const pem = opened.get(id)
        return pem ? [{ id, pem }] : []
      }),
    })),
  }
}

/** Equal wanted load balancers have equal versions. Opens no private key. */
export const loadBalancersVersion = async (hostId: string): Promise<string> =>
  (await describe(hostId)).version

const certificateIds = ({ listeners }: Pick<Described, 'listeners'>): string[] => [
  ...new Set(listeners.flatMap(({ certificate_ids }) => certificate_ids)),
]

async function describe(hostId: string): Promise<{ version: string; described: Described[] }> {
  const replicas = await Replica.find({ host_id: hostId }).setOptions(everyTenant).sort({ _id: 1 }).lean()
  if (replicas.length === 0) return versioned([], [])
  const ids = replicas.map(({ load_balancer_id }) => load_balancer_id)
  const [balancers, routes] = await Promise.all([
    LoadBalancer.find({ _id: { $in: ids }, status: { $ne: 'deleting' } })
      .setOptions(everyTenant)
      .lean(),
    Route.find({ lb_id: { $in: ids }, status: { $ne: 'disabled' } })
      .setOptions(everyTenant)
      .sort({ _id: 1 })
      .lean(),
  ])
  const [placeOf, trusts, certificates, challenges] = await Promise.all([
    placesOfTargets(routes),
    CaTrust.find({ _id: { $in: routes.flatMap(({ backend_ca_trust_id: id }) => id ?? []) } })
      .setOptions(everyTenant)
      .lean(),
    Certificate.find({ _id: { $in: balancers.flatMap(certificateIds) } }, { fingerprint: 1 })
      .setOptions(everyTenant)
      .sort({ _id: 1 })
      .lean(),
    challengesOf(balancers.map(({ tenant_id }) => tenant_id)),
  ])
  const byId = new Map(balancers.map((one) => [one._id, one]))
  const now = new Date()
  const described = replicas.flatMap(({ _id, load_balancer_id }): Described[] => {
    const balancer = byId.get(load_balancer_id)
    if (!balancer) return []
    const its = routes.filter(({ lb_id }) => lb_id === load_balancer_id)
    return [
      {
        ...fieldsOf(balancer),
        replica_id: _id,
        routes: its.map((route) => routeSpec(route, placeOf, now)),
        ca_trusts: trusts
          .filter((trust) => its.some(({ backend_ca_trust_id }) => backend_ca_trust_id === trust._id))
          .map((trust) => ({ id: trust._id, pem: trust.certificates_pem })),
        challenges: balancer.listeners.some(({ protocol }) => protocol === 'http')
          ? (challenges.get(balancer.tenant_id) ?? [])
          : [],
      },
    ]
  })
  return versioned(
    described,
    certificates.map(({ _id, fingerprint }) => [_id, fingerprint ?? '']),
  )
}

const versioned = (described: Described[], certificates: string[][]) => ({
  version: createHash('sha256')
    .update(JSON.stringify([described, certificates]))
    .digest('hex'),
  described,
})

const fieldsOf = ({ _id, tenant_id, listeners, health_check, log_cap_mib }: LoadBalancerDocument) => ({
  id: _id,
  tenant_id,
  listeners,
  health_check,
  log_cap_mib,
})

type PlaceOf = (target: TargetRecord) => { address: string; runs: boolean } | null

function routeSpec(route: RouteDocument, placeOf: PlaceOf, now: Date): RouteSpec {
  const { _id, redirect_status: status, redirect_url: url } = route
  const spec = (target: TargetRecord, isDraining: boolean): TargetSpec[] => {
    const place = placeOf(target)
    if (!place) return []
    const state = place.runs ? (isDraining ? 'draining' : 'active') : 'stopped'
    return [{ id: target.id, address: place.address, port: target.port, weight: target.weight, state }]
  }
  return {
    id: _id,
    priority: route.priority,
    host_match: route.host_match,
    listener_port: route.listener_port,
    path_match: route.path_match,
    path_match_type: route.path_match_type,
    method: route.method,
    prefix_rewrite: route.prefix_rewrite,
    redirect: status === null || url === null ? null : { status, url },
    redirect_to_https: route.redirect_to_https,
    request_headers_add: route.request_headers_add,
    request_headers_remove: route.request_headers_remove,
    response_headers_add: route.response_headers_add,
    response_headers_remove: route.response_headers_remove,
    idle_timeout_sec: route.idle_timeout_sec,
    request_timeout_sec: route.request_timeout_sec,
    backend_port: route.backend_port,
    backend_tls: route.backend_tls,
    backend_sni: route.backend_sni,
    backend_ca_trust_id: route.backend_ca_trust_id,
    sticky: route.sticky,
    // In an order of their own: a target that begins to drain then changes its weight only, without a reload.
    targets: [
      ...route.targets.flatMap((target) => spec(target, false)),
      // Time alone ends a drain: the next report then finds another version.
      ...route.draining.flatMap(({ target, until }) => (until > now ? spec(target, true) : [])),
    ].toSorted((a, b) => (a.id < b.id ? -1 : 1)),
  }
}

// Also while its host does not answer: the instance may run, and the health check decides.
const running = new Set<string>(['running', 'updating', 'unreachable'])

/** Where each target is, and whether its instance runs. Null for a NIC that is gone. */
async function placesOfTargets(routes: RouteDocument[]): Promise<PlaceOf> {
  const targets = routes.flatMap((route) => [...route.targets, ...route.draining.map(({ target }) => target)])
  const ids = targets.flatMap(({ nic_id }) => nic_id ?? [])
  const nics = ids.length
    ? await Nic.find({ _id: { $in: ids }, wanted: true })
        .setOptions(everyTenant)
        .lean()
    : []
  const instances = nics.length
    ? await findInstances({ _id: { $in: nics.map(({ instance_id }) => instance_id) } })
    : []
  const runs = new Set(
    instances
      .filter(({ instance: { status, desired_state } }) => desired_state === 'running' && running.has(status))
      .map(({ instance }) => instance._id),
  )
  const byNic = new Map(nics.map((nic) => [nic._id, nic]))
  return ({ address, nic_id }) => {
    if (address !== null) return { address, runs: true }
    const nic = byNic.get(nic_id ?? '')
    return nic ? { address: nic.ip_address, runs: runs.has(nic.instance_id) } : null
  }
}

/** The load balancers with targets on these instances. */
export async function loadBalancersWith(instanceIds: string[]): Promise<string[]> {
  const nics = await Nic.find({ instance_id: { $in: instanceIds } }, { _id: 1 })
    .setOptions(everyTenant)
    .lean()
  if (nics.length === 0) return []
  return Route.distinct('lb_id', { 'targets.nic_id': { $in: nics.map(({ _id }) => _id) } }).setOptions(
    everyTenant,
  )
}

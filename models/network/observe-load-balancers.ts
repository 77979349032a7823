import type { TargetHealth } from '../../drivers/load-balancers.ts'
import { ObservedLoadBalancer } from '../../lib/load-balancer-protocol.ts'
import { noteActivity } from '../activity.ts'
import type { Observer } from '../compute/observer.ts'
import { observer } from '../compute/observer.ts'
import { everyTenant } from '../tenant-scope.ts'
import { loadBalancersVersion } from './host-load-balancers.ts'
import { copyEndpoints } from './load-balancer-endpoints.ts'
import { Route } from './load-balancer-routes.ts'
import { LoadBalancer, Replica, type ReplicaDocument } from './load-balancers.ts'

/**
 * Records what a host reports about its load balancers, and writes changes of health to their activity feeds. A host
 * mends its load balancers itself, so a difference needs no operation.
 */
export const loadBalancerObserver: Observer = {
  ...observer({
    kinds: ['load_balancer'],
    schema: ObservedLoadBalancer,
    async observe(hostId, seen, ageMs) {
      const replicas = await Replica.find({ host_id: hostId }).setOptions(everyTenant).lean()
      if (replicas.length === 0) return { not_yours: seen.map(({ id }) => id) }
      const wanted = new Set(replicas.map(({ load_balancer_id }) => load_balancer_id))
      const found = new Map(seen.map((one) => [one.id, one]))
      // While an operation changes one, only its success is worth recording.
      const busy = await LoadBalancer.distinct('_id', {
        _id: { $in: [...wanted] },
        operation_id: { $ne: null },
      }).setOptions(everyTenant)
      for (const replica of replicas) {
        const one = found.get(replica.load_balancer_id)
        if (one?.state === 'running' || !busy.includes(replica.load_balancer_id))
          await record(replica, one, ageMs)
      }
      await LoadBalancer.updateMany(
        { _id: { $in: [...wanted] }, status: 'unreachable', operation_id: null },
        { $set: { status: 'running', status_reason: null } },
      ).setOptions(everyTenant)
      return { not_yours: seen.flatMap(({ id }) => (wanted.has(id) ? [] : [id])) }
    },
  }),
  wanted: loadBalancersVersion,
}

// A report on its way may be older than what an operation has recorded meanwhile.
const recentMs = 2_000

async function record(
  before: ReplicaDocument,
  seen: ObservedLoadBalancer | undefined,
  ageMs: number,
): Promise<void> {
  // A new replica is not there yet. One that was there is broken: its host starts it again.
  const isNew = before.state === 'starting' || before.updated_at.getTime() > Date.now() - ageMs - recentMs
  if (!seen && isNew) return
  const state = seen?.state === 'running' ? 'running' : 'broken'
  const { ports, refused, left_out, targets } = seen ?? before
  const now = { state, ports, refused, left_out } as const
  const was = {
    state: before.state,
    ports: before.ports,
    refused: before.refused,
    left_out: before.left_out,
  }
  const isSame = JSON.stringify(now) === JSON.stringify(was)
  if (isSame && JSON.stringify(targets) === JSON.stringify(before.targets)) return
  const { _id, tenant_id, load_balancer_id: id, host_id, updated_at } = before
  const { modifiedCount } = await Replica.updateOne(
    { _id, tenant_id, host_id, updated_at },
    { $set: { ...now, targets } },
  )
  if (modifiedCount === 0) return // a later report was faster
  if (!isSame) await copyEndpoints(id)
  if (state !== before.state && before.state !== 'starting') await noteState(before, state)
  if (now.refused.length || before.refused.length) await noteRefusals(before, now.refused)
  await noteLeftOut(before, left_out)
  await noteHealth(before, targets)
}

const messages = {
  broken: 'The load balancer ended on its host, which is starting it again',
  running: 'The load balancer runs again',
} as const

const noteState = ({ tenant_id, load_balancer_id, host_id }: ReplicaDocument, state: keyof typeof messages) =>
  noteActivity({
    tenant_id,
    resource_id: load_balancer_id,
    kind: state,
    message: messages[state],
    data: { host_id },
  })

/** A route that the proxy of any host refuses is in error. */
async function noteRefusals(before: ReplicaDocument, refused: ReplicaDocument['refused']): Promise<void> {
  const { tenant_id, load_balancer_id: lb_id } = before
  const ids = refused.map(({ route_id }) => route_id)
  const accepted = before.refused.flatMap(({ route_id }) => (ids.includes(route_id) ? [] : [route_id]))
  await Route.updateMany(
    { tenant_id, lb_id, _id: { $in: accepted }, status: 'error' },
    { $set: { status: 'active', status_reason: null } },
  )
  for (const { route_id, reason } of refused)
    await Route.updateOne(
      { tenant_id, lb_id, _id: route_id, status: { $ne: 'disabled' } },
      { $set: { status: 'error', status_reason: reason } },
    )
  const known = new Set(before.refused.map(({ route_id, reason }) => `${route_id} ${reason}`))
  for (const { route_id, reason } of refused) {
    if (known.has(`${route_id} ${reason}`)) continue
    await noteActivity({
      tenant_id,
      resource_id: lb_id,
      kind: 'route_refused',
      message: `The proxy refused a route: ${reason}`,
      data: { route_id, host_id: before.host_id },
    })
  }
}

const partNames = {
  certificate: 'certificate',
  ca_trust: 'CA trust',
  listener: 'listener',
} as const

/** Certificates, CA trusts and listeners that the proxy cannot use: the others are in effect. */
async function noteLeftOut(before: ReplicaDocument, leftOut: ReplicaDocument['left_out']): Promise<void> {
  const { tenant_id, load_balancer_id, host_id } = before
  const known = new Set(before.left_out.map(({ kind, id, reason }) => `${kind} ${id} ${reason}`))
  for (const { kind, id, reason } of leftOut) {
    if (known.has(`${kind} ${id} ${reason}`)) continue
    await noteActivity({
      tenant_id,
      resource_id: load_balancer_id,
      kind: `${kind}_refused`,
      message: `The proxy runs without the ${partNames[kind]} ${id}: ${reason}`,
      data: { [kind === 'listener' ? 'port' : `${kind}_id`]: kind === 'listener' ? Number(id) : id, host_id },
    })
  }
}

const key = ({ route_id, target_id }: { route_id: string; target_id: string }) => `${route_id} ${target_id}`

async function noteHealth(before: ReplicaDocument, targets: ReplicaDocument['targets']): Promise<void> {
  const { tenant_id, load_balancer_id, host_id } = before
  const was = new Map(before.targets.map((one) => [key(one), one.health]))
  const changed = targets.filter((one) => isNews(was.get(key(one)), one.health))
  if (changed.length === 0) return
  const routes = await Route.find({ tenant_id, _id: { $in: changed.map(({ route_id }) => route_id) } }).lean()
  const byId = new Map(routes.map((route) => [route._id, route]))
  for (const { route_id, target_id, health } of changed) {
    const route = byId.get(route_id)
    const target = route?.targets.find(({ id }) => id === target_id)
    if (!route || !target) continue
    const { address, nic_id } = target
    const what = address === null ? `at the NIC ${nic_id}` : `at ${address}`
    await noteActivity({
      tenant_id,
      resource_id: load_balancer_id,
      kind: `target_${health}`,
      message: `The target ${what} of the route ${route.name} is ${health}`,
      data: { route_id, address, nic_id, host_id },
    })
  }
}

/** The first check of a target is no news if it succeeds. */
const isNews = (was: TargetHealth | undefined, is: TargetHealth): boolean =>
  is !== was && (is === 'unhealthy' || (is === 'healthy' && was === 'unhealthy'))

/** The health of each target over all replicas: healthy if any replica can reach it. */
export async function healthOf(lbIds: string[]): Promise<Map<string, TargetHealth>> {
  const replicas = await Replica.find({ load_balancer_id: { $in: lbIds } }, { targets: 1, state: 1 })
    .setOptions(everyTenant)
    .lean()
  const rank: TargetHealth[] = ['healthy', 'draining', 'unhealthy', 'unknown']
  const health = new Map<string, TargetHealth>()
  for (const one of replicas.flatMap(({ targets, state }) => (state === 'running' ? targets : []))) {
    const other = health.get(key(one))
    if (other === undefined || rank.indexOf(one.health) < rank.indexOf(other))
      health.set(key(one), one.health)
  }
  return health
}

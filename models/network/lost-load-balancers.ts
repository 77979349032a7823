import { Problem } from '../../lib/problem.ts'
import { noteActivity } from '../activity.ts'
import { Host } from '../compute/hosts.ts'
import { everyTenant } from '../tenant-scope.ts'
import { copyEndpoints } from './load-balancer-endpoints.ts'
import { acceptLoadBalancerReschedule } from './load-balancer-acceptance.ts'
import { LoadBalancer, type LoadBalancerDocument, Replica, type ReplicaDocument } from './load-balancers.ts'

// Without room elsewhere a move fails. It is tried again after this time.
const againAfterMs = 60_000

/**
 * Moves the load balancers of unreachable hosts to other hosts, by operations of the platform. Called again and again;
 * a load balancer with an open operation is left to the next call.
 */
export async function rescueLoadBalancers(now = Date.now()): Promise<void> {
  const lost = await Host.find({ unreachable_since: { $ne: null } }, { _id: 1 }).lean()
  if (lost.length === 0) return
  const replicas = await Replica.find({
    host_id: { $in: lost.map(({ _id }) => _id) },
    $or: [{ rescued_at: null }, { rescued_at: { $lt: new Date(now - againAfterMs) } }],
  })
    .setOptions(everyTenant)
    .lean()
  for (const replica of replicas) {
    const balancer = await markUnreachable(replica)
    if (balancer && !balancer.operation_id) await rescue(balancer, replica, now)
  }
}

async function markUnreachable(replica: ReplicaDocument): Promise<LoadBalancerDocument | null> {
  const { _id, tenant_id, load_balancer_id: id } = replica
  if (replica.state !== 'unreachable') {
    await Replica.updateOne({ _id, tenant_id }, { $set: { state: 'unreachable', targets: [] } })
    await copyEndpoints(id)
    await noteActivity({
      tenant_id,
      resource_id: id,
      kind: 'unreachable',
      message: 'The host of the load balancer does not answer',
      data: { host_id: replica.host_id },
    })
  }
  const others = await Replica.countDocuments({ tenant_id, load_balancer_id: id, state: 'running' })
  if (others === 0) {
    await LoadBalancer.updateOne(
      { _id: id, tenant_id, status: 'running', operation_id: null },
      { $set: { status: 'unreachable', status_reason: 'The host of the load balancer does not answer' } },
    )
  }
  return LoadBalancer.findOne({ _id: id, tenant_id }).lean()
}

async function rescue(
  { _id, tenant_id, status }: LoadBalancerDocument,
  { _id: replicaId, host_id }: ReplicaDocument,
  now: number,
): Promise<void> {
  if (status === 'error') return // the tenant decides
  try {
    const by = { tenant_id, id: null }
    const input = { from_host_id: host_id, host_id: null }
    const { operation } = await acceptLoadBalancerReschedule(by, _id, input)
    await Replica.updateOne({ _id: replicaId, tenant_id }, { $set: { rescued_at: new Date(now) } })
    await noteActivity({
      tenant_id,
      resource_id: _id,
      kind: 'rescue',
      message: 'The platform is moving the load balancer to another host',
      data: { operation_id: operation._id, host_id },
    })
  } catch (error) {
    // Something has changed since, as by an operation that has begun: the next call sees it.
    if (!(error instanceof Problem)) throw error
  }
}

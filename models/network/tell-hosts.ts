import type { Logger } from '../../lib/log.ts'
import { instanceKindNames, type InstanceKindName } from '../../lib/host-protocol.ts'
import { tellPart } from '../compute/tell-part.ts'
import { onOperationChange } from '../operations.ts'
import { everyTenant } from '../tenant-scope.ts'
import { loadBalancersWith } from './host-load-balancers.ts'
import { type Concerned, onLoadBalancersChanged } from './load-balancer-news.ts'
import { Route } from './load-balancer-routes.ts'
import { answeringChallenges, LoadBalancer, Replica } from './load-balancers.ts'

/** Few instances are targets, so the changes of this time are looked up together. */
const gatheredMs = 50

const isInstance = (kind: string): kind is InstanceKindName =>
  (instanceKindNames as readonly string[]).includes(kind)

/**
 * From now on, tells hosts when their load balancers change: by a change of a record, and when an operation begins or ends on a
 * load balancer or, 50 ms later, on an instance that is a target.
 */
export function tellHostsOfLoadBalancers(log: Logger): void {
  const tell = (concerned: Concerned): void => {
    tellHosts(concerned).catch((err: unknown) =>
      log.debug({ err, ...concerned }, 'hosts were not told; they see it at their next report'),
    )
  }
  let instances = new Set<string>()
  function tellOfInstances(): void {
    const ids = [...instances]
    instances = new Set()
    tell({ instance_ids: ids })
  }
  onLoadBalancersChanged(tell)
  onOperationChange(({ resource_kind: kind, resource_id: id, ended_at }) => {
    if (isInstance(kind) && instances.add(id).size === 1) setTimeout(tellOfInstances, gatheredMs)
    // Its workflow tells the hosts; only a failure restores the record afterwards.
    if (kind === 'load_balancer' && ended_at) tell({ ids: [id] })
  })
}

async function tellHosts(concerned: Concerned): Promise<void> {
  const ids = await balancersOf(concerned)
  if (ids.length === 0) return
  const hostIds = await Replica.distinct('host_id', { load_balancer_id: { $in: ids } }).setOptions(
    everyTenant,
  )
  await tellPart('load_balancers', hostIds)
}

async function balancersOf(concerned: Concerned): Promise<string[]> {
  if ('ids' in concerned) return concerned.ids
  if ('instance_ids' in concerned) return loadBalancersWith(concerned.instance_ids)
  if ('challenges_of' in concerned)
    return (await answeringChallenges(concerned.challenges_of)).map(({ _id }) => _id)
  return 'certificate_id' in concerned
    ? LoadBalancer.distinct('_id', { 'listeners.certificate_ids': concerned.certificate_id }).setOptions(
        everyTenant,
      )
    : Route.distinct('lb_id', { backend_ca_trust_id: concerned.ca_trust_id }).setOptions(everyTenant)
}

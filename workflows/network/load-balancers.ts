import {
  ApplicationFailure,
  isCancellation,
  proxyActivities,
  proxyLocalActivities,
} from '@temporalio/workflow'
import type { HostActivities } from '../../activities/host/index.ts'
import type { LoadBalancerActivities } from '../../activities/network/load-balancers.ts'
import type { Outcome } from '../../activities/operations.ts'
import { durable } from '../durable.ts'
import { tellHosts } from './hosts.ts'

const platform = proxyLocalActivities<LoadBalancerActivities>({
  startToCloseTimeout: '10 s', // a few queries
  retry: { initialInterval: '100 ms', maximumInterval: '5 s' },
})

/** A host that applies its load balancers and says how one of them runs. */
const on = (hostId: string) =>
  proxyActivities<HostActivities>({
    taskQueue: `host-${hostId}`,
    // A lost host is not waited for: the operation fails, and the platform moves the replica.
    scheduleToStartTimeout: '15 s',
    startToCloseTimeout: '60 s', // makes the VPC's networks, and starts the proxy
    heartbeatTimeout: '10 s', // detects a killed host worker
    // A killed host worker, or the API that it asks, is back in seconds. After half a minute the proxy is at fault.
    retry: { initialInterval: '500 ms', maximumInterval: '5 s', maximumAttempts: 12 },
    cancellationType: 'WAIT_CANCELLATION_COMPLETED',
  })

const soon = (hostId: string) =>
  proxyActivities<HostActivities>({
    taskQueue: `host-${hostId}`,
    // Do not wait for an unreachable host: it asks when it is back.
    scheduleToStartTimeout: '3 s',
    startToCloseTimeout: '30 s', // the proxy ends its connections first
    heartbeatTimeout: '10 s', // detects a killed host worker
    retry: { maximumAttempts: 1 },
  })

/** Tells hosts to apply their load balancers as recorded now. What fails is repeated at their next reports. */
async function tellBalancerHosts(hostIds: string[]): Promise<void> {
  await Promise.all(
    hostIds.map((hostId) =>
      soon(hostId)
        .applyLoadBalancersOnHost()
        .catch((error: unknown) => {
          if (isCancellation(error)) throw error
        }),
    ),
  )
}

/** Waits until a host runs its replica as recorded. Throws why it does not. */
async function runOn(id: string, hostId: string): Promise<void> {
  const { ports, refused } = await on(hostId).runLoadBalancerOnHost(id)
  await platform.replicaRuns(id, hostId, { ports, refused })
}

/** Has every replica run on a host. Returns how many there are to be. */
async function bringUp(id: string): Promise<number> {
  const { replicas, host_ids, silent, network_hosts } = await platform.placeReplicas(id)
  await Promise.all([...host_ids.map((hostId) => runOn(id, hostId)), tellHosts(network_hosts)])
  if (host_ids.length === 0 && silent)
    throw ApplicationFailure.nonRetryable('The host of the load balancer does not answer', 'host_unreachable')
  return replicas
}

const runs = async (id: string): Promise<Outcome> => ({
  status: 'running',
  endpoints: await platform.endpointsOf(id),
})

export const createLoadBalancer = durable(async ({ id, undo, progress }) => {
  progress('finding hosts and starting the load balancer')
  undo(async () => {
    await tellBalancerHosts(await platform.withdrawReplicas(id, 0))
    await platform.releaseReplicas(id)
  })
  await bringUp(id)
  return runs(id)
})

/**
 * The record has changed already. A failure restores it: hosts apply the restored record when they are told of the end
 * of the operation, or at their next reports.
 */
export const updateLoadBalancer = durable<{ replicas_before: number }>(
  async ({ id, input, undo, progress, settle }) => {
    const dropFrom = async (count: number): Promise<void> => {
      await tellBalancerHosts(await platform.withdrawReplicas(id, count))
      await platform.dropReplicas(id, count)
    }
    progress('changing the load balancer on its hosts')
    undo(() => dropFrom(input.replicas_before))
    const replicas = await bringUp(id)
    await settle(() => dropFrom(replicas))
    return runs(id)
  },
)

/**
 * Moves a replica. It keeps its address in the VPC, so its present host removes it before the new one starts it. A host
 * that does not answer is cut off from the VPC instead, and removes it when it is back.
 */
export const rescheduleLoadBalancer = durable<{ replica_id: string; host_id: string | null }>(
  async (work) => {
    const { id, input, undo, progress, settle } = work
    const { replica_id } = input
    progress('finding another host')
    undo(async () => {
      const { host_ids } = await platform.stayReplica(replica_id)
      await tellBalancerHosts(host_ids)
    })
    const { from_host_id, host_id, network_hosts } = await platform.placeReplicaElsewhere(
      id,
      replica_id,
      input.host_id,
    )
    if (from_host_id) {
      progress('removing it from its present host')
      await tellBalancerHosts([from_host_id])
    }
    await tellHosts(network_hosts) // cuts off a former host that does not answer
    progress('starting it on its new host')
    await runOn(id, host_id)
    await settle(() => platform.arriveReplica(replica_id))
    await tellHosts(network_hosts)
    return runs(id)
  },
)

export const deleteLoadBalancer = durable(
  async ({ id, progress }) => {
    progress('removing the load balancer from its hosts')
    const { host_ids, network_hosts } = await platform.hostsOfLoadBalancer(id)
    await tellBalancerHosts(host_ids)
    await platform.releaseLoadBalancer(id)
    await tellHosts([...host_ids, ...network_hosts])
    return 'deleted'
  },
  { final: true },
)

import { ApplicationFailure } from '@temporalio/activity'
import { removeArchive } from '../../models/compute/log-archive.ts'
import { place, placeElsewhere } from '../../models/compute/placement.ts'
import { arrive, heldBy, hostsOf, Reservation, stay } from '../../models/compute/reservations.ts'
import { cutOff } from '../../models/network/host-networks.ts'
import { dropReplica, releaseReplica } from '../../models/network/load-balancer-acceptance.ts'
import { endpointsOf } from '../../models/network/load-balancer-endpoints.ts'
import { Route } from '../../models/network/load-balancer-routes.ts'
import {
  type Endpoint,
  LoadBalancer,
  type LoadBalancerDocument,
  Replica,
  type ReplicaDocument,
  replicasOf,
} from '../../models/network/load-balancers.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { answering } from '../compute/answering.ts'
import { networkHosts } from './networks.ts'

export const makeLoadBalancerActivities = () => ({
  /** Chooses a host for each replica that has none, and returns the hosts of all. Throws NoCapacity. */
  async placeReplicas(id: string): Promise<Placed> {
    const { replicas: wanted } = await balancerOf(id)
    const replicas = (await replicasOf(id)).slice(0, wanted)
    for (const replica of replicas) {
      if (replica.host_id !== null) continue
      const notOn = replicas.flatMap(({ host_id }) => host_id ?? [])
      const host = await place(replica._id, { kind: 'load_balancer', notOn })
      await runOn(replica, host._id)
      replica.host_id = host._id
    }
    const hosts = replicas.flatMap(({ host_id }) => host_id ?? [])
    const answers = await Promise.all(hosts.map(answering))
    return {
      replicas: wanted,
      host_ids: answers.filter((host) => host !== null),
      silent: answers.filter((host) => host === null).length,
      network_hosts: await othersOf(replicas, hosts),
    }
  },

  /**
   * Takes the replicas from this number on away from their hosts, which remove them when they are told. They keep their
   * addresses until `dropReplicas` or `releaseReplicas`. Returns those of the hosts that answer.
   */
  async withdrawReplicas(id: string, from: number): Promise<string[]> {
    const withdrawn = (await replicasOf(id)).slice(from)
    for (const { _id, tenant_id } of withdrawn)
      await Replica.updateOne({ _id, tenant_id }, { $set: { host_id: null, ...unknown } })
    return answeringOf(withdrawn)
  },

  /** Releases the quota and room of all replicas. They keep their addresses until the deletion. */
  async releaseReplicas(id: string): Promise<void> {
    for (const { _id, tenant_id } of await replicasOf(id)) await releaseReplica(_id, tenant_id)
  },

  /** Drops the replicas from this number on. */
  async dropReplicas(id: string, from: number): Promise<void> {
    for (const { _id, tenant_id } of (await replicasOf(id)).slice(from)) await dropReplica(_id, tenant_id)
  },

  endpointsOf: (id: string): Promise<Endpoint[]> => endpointsOf(id),

  /** Records how a host runs its replica, before its next report does. */
  async replicaRuns(
    id: string,
    hostId: string,
    { ports, refused }: Pick<ReplicaDocument, 'ports' | 'refused'>,
  ): Promise<void> {
    await Replica.updateOne(
      { load_balancer_id: id, host_id: hostId },
      { $set: { state: 'running', ports, refused } },
    ).setOptions(everyTenant)
  },

  /** Reserves room for a replica on another host, which is to run it from now on. */
  async placeReplicaElsewhere(
    id: string,
    replicaId: string,
    wantedHostId: string | null,
  ): Promise<{ from_host_id: string | null; host_id: string; network_hosts: string[] }> {
    const replicas = await replicasOf(id)
    const replica = replicas.find(({ _id }) => _id === replicaId)
    if (!replica) throw ApplicationFailure.nonRetryable('The replica no longer exists', 'not_found')
    const { host_id: former } = await heldBy(replicaId)
    const from_host_id = await answering(former)
    const notOn = replicas.flatMap(({ host_id }) => host_id ?? [])
    const host = await placeElsewhere([replicaId], { kind: 'load_balancer', hostId: wantedHostId, notOn })
    if (former && !from_host_id) await cutOff(replicaId, former)
    await runOn(replica, host._id)
    const network_hosts = await othersOf([replica], [host._id])
    return { from_host_id, host_id: host._id, network_hosts }
  },

  /** Gives up the move: the replica stays on its host. */
  async stayReplica(replicaId: string): Promise<{ host_ids: string[] }> {
    const replica = await Replica.findById(replicaId).setOptions(everyTenant).lean()
    if (!replica) return { host_ids: [] }
    const { host_id, target_host_id } = await heldBy(replicaId)
    if (host_id && replica.host_id !== host_id) await runOn(replica, host_id)
    await stay(replicaId)
    const hosts = await Promise.all([host_id, target_host_id].map(answering))
    return { host_ids: hosts.filter((host) => host !== null) }
  },

  arriveReplica: (replicaId: string): Promise<void> => arrive(replicaId),

  /** Those of the hosts of a load balancer that answer, and all other hosts with members of its VPC. */
  async hostsOfLoadBalancer(id: string): Promise<{ host_ids: string[]; network_hosts: string[] }> {
    const replicas = await replicasOf(id)
    const host_ids = await answeringOf(replicas)
    return { host_ids, network_hosts: await othersOf(replicas, host_ids) }
  },

  /** Deletes the routes, replicas and log archive of a load balancer. */
  async releaseLoadBalancer(id: string): Promise<void> {
    const { tenant_id } = await balancerOf(id)
    await Route.deleteMany({ tenant_id, lb_id: id })
    for (const { _id } of await replicasOf(id)) await dropReplica(_id, tenant_id)
    await removeArchive(id)
  },
})

export type LoadBalancerActivities = ReturnType<typeof makeLoadBalancerActivities>

export interface Placed {
  /** How many replicas the load balancer is to have. */
  replicas: number
  /** The hosts of the replicas that answer. */
  host_ids: string[]
  /** How many hosts do not answer. */
  silent: number
  /** The other hosts with members of the VPC, to tell of the NICs. */
  network_hosts: string[]
}

async function balancerOf(id: string): Promise<LoadBalancerDocument> {
  const balancer = await LoadBalancer.findById(id).setOptions(everyTenant).lean()
  if (!balancer) throw ApplicationFailure.nonRetryable('The load balancer no longer exists', 'not_found')
  return balancer
}

/** What is not known of a replica before its host has reported it. */
const unknown = { state: 'starting', ports: [], refused: [], left_out: [], targets: [] } as const

const runOn = async ({ _id, tenant_id }: ReplicaDocument, host_id: string): Promise<void> => {
  await Replica.updateOne({ _id, tenant_id }, { $set: { host_id, ...unknown } })
}

/** The hosts with room reserved for these that answer. The others are cut off from the VPC: they may still run them. */
async function answeringOf(replicas: ReplicaDocument[]): Promise<string[]> {
  const there = new Set<string>()
  for (const { _id } of replicas) {
    const held = await Reservation.findById(_id).setOptions(everyTenant).lean()
    for (const hostId of held ? hostsOf(held) : []) {
      if (await answering(hostId)) there.add(hostId)
      else await cutOff(_id, hostId)
    }
  }
  return [...there]
}

async function othersOf(replicas: ReplicaDocument[], except: string[]): Promise<string[]> {
  const [first] = replicas
  const hosts = first ? await networkHosts(first._id) : []
  return hosts.filter((host) => !except.includes(host))
}

import { Host } from '../../models/compute/hosts.ts'
import { hostsOf, Reservation } from '../../models/compute/reservations.ts'
import { reachableHosts, reachableHostsOf } from '../../models/network/host-networks.ts'
import { type NicView, nicsOf, releaseNic, wantNic } from '../../models/network/nics.ts'
import { Subnet } from '../../models/network/subnets.ts'
import { everyTenant } from '../../models/tenant-scope.ts'

export const makePlatformNetworkActivities = () => ({
  /** The hosts that answer and have members of the subnet's VPC. */
  async hostsOfSubnet(id: string): Promise<string[]> {
    const subnet = await Subnet.findById(id).setOptions(everyTenant).lean()
    return subnet ? reachableHosts(subnet.vpc_id) : []
  },

  /** The host of an instance with NICs, or null if it does not answer, and the other hosts with members of its VPC. */
  async placesOfInstance(id: string): Promise<{ host_id: string | null; others: string[] }> {
    const [held, others] = await Promise.all([
      Reservation.findById(id).setOptions(everyTenant).lean(),
      networkHosts(id),
    ])
    const [host_id = null] = held ? hostsOf(held) : []
    const answers = host_id && (await Host.exists({ _id: host_id, unreachable_since: null }))
    return { host_id: answers ? host_id : null, others: others.filter((other) => other !== host_id) }
  },

  nicsOfInstance: (id: string): Promise<NicView[]> => nicsOf(id),

  wantNic: (id: string, wanted: boolean): Promise<void> => wantNic(id, wanted),
  releaseNic: (id: string): Promise<void> => releaseNic(id),
})

export type PlatformNetworkActivities = ReturnType<typeof makePlatformNetworkActivities>

/** The hosts that answer and have members of the instance’s VPCs; none for an instance without NICs. */
export const networkHosts = (instanceId: string): Promise<string[]> => reachableHostsOf(instanceId)

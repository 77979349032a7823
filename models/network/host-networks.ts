import { createHash } from 'node:crypto'
import type { SubnetSpec } from '../../drivers/networks.ts'
import type { HostNetworks } from '../../lib/host-protocol.ts'
import { Host } from '../compute/hosts.ts'
import { hostsOf, Reservation } from '../compute/reservations.ts'
import { everyTenant } from '../tenant-scope.ts'
import { defaultDomain } from './dhcp.ts'
import { Nic, type NicDocument } from './nics.ts'
import { Subnet, type SubnetDocument } from './subnets.ts'
import { Vpc } from './vpcs.ts'

// The wanted VPC state of a host. It is sent as a whole, so a host that missed a change is up to date with the next
// answer.

/** The wanted networks of a host. Equal networks have equal versions. */
export async function networksOf(hostId: string): Promise<HostNetworks> {
  const here = await instancesOn(hostId)
  const vpcIds = await Nic.distinct('vpc_id', { instance_id: { $in: here }, wanted: true }).setOptions(
    everyTenant,
  )
  if (vpcIds.length === 0) return versioned({ subnets: [], nics: [] })
  const these = { vpc_id: { $in: vpcIds } }
  const [subnets, nics, vpcs] = await Promise.all([
    Subnet.find({ ...these, status: { $ne: 'deleting' } })
      .setOptions(everyTenant)
      .sort({ _id: 1 })
      .lean(),
    Nic.find({ ...these, wanted: true })
      .setOptions(everyTenant)
      .sort({ _id: 1 })
      .lean(),
    Vpc.find({ _id: { $in: vpcIds } }, { cut_off_hosts: 1 })
      .setOptions(everyTenant)
      .lean(),
  ])
  const cutOffs = new Map(vpcs.map(({ _id, cut_off_hosts }) => [_id, cut_off_hosts]))
  const membersHosts = await hostsByVpc(nics)
  const addresses = await underlayAddresses([...membersHosts.values()].flat())
  return versioned({
    subnets: subnets.map((subnet) => {
      const hosts = membersHosts.get(subnet.vpc_id) ?? []
      const deaf = cutOffs.get(subnet.vpc_id) ?? []
      const peers = deaf.includes(hostId) ? [] : hosts.filter((id) => id !== hostId && !deaf.includes(id))
      const vpcNics = nics.filter(({ vpc_id }) => vpc_id === subnet.vpc_id)
      return {
        ...describe(subnet, vpcNics),
        peers: peers.flatMap((id) => addresses.get(id) ?? []).toSorted(),
        dhcp: dhcpOf(subnet, hosts[0] === hostId),
      }
    }),
    nics: nics
      .filter(({ instance_id }) => here.includes(instance_id))
      .map((nic) => ({
        id: nic._id,
        instance_id: nic.instance_id,
        vpc_id: nic.vpc_id,
        subnet_id: nic.subnet_id,
        mac_address: nic.mac_address,
        ip_address: nic.ip_address,
        default_route: nics.find(({ instance_id }) => instance_id === nic.instance_id)?._id === nic._id,
      })),
  })
}

const versioned = (networks: Omit<HostNetworks, 'version'>): HostNetworks => ({
  version: createHash('sha256').update(JSON.stringify(networks)).digest('hex'),
  ...networks,
})

async function instancesOn(hostId: string): Promise<string[]> {
  const held = await Reservation.find({ $or: [{ host_id: hostId }, { target_host_id: hostId }] }, { _id: 1 })
    .setOptions(everyTenant)
    .lean()
  return held.map(({ _id }) => _id)
}

/** The hosts with members of each VPC, sorted: all hosts get the same order. */
async function hostsByVpc(nics: NicDocument[]): Promise<Map<string, string[]>> {
  const ids = [...new Set(nics.map(({ instance_id }) => instance_id))]
  const held = await Reservation.find({ _id: { $in: ids } }, { host_id: 1, target_host_id: 1 })
    .setOptions(everyTenant)
    .lean()
  const places = new Map(held.map((one) => [one._id, hostsOf(one)]))
  const hosts = new Map<string, string[]>()
  for (const [vpcId, members] of Map.groupBy(nics, ({ vpc_id }) => vpc_id)) {
    const all = members.flatMap(({ instance_id }) => places.get(instance_id) ?? [])
    hosts.set(vpcId, [...new Set(all)].toSorted())
  }
  return hosts
}

async function underlayAddresses(hostIds: string[]): Promise<Map<string, string>> {
  const hosts = await Host.find({ _id: { $in: hostIds } }, { underlay_address: 1 }).lean()
  return new Map(
    hosts.flatMap(({ _id, underlay_address }) => (underlay_address ? [[_id, underlay_address]] : [])),
  )
}

function describe(subnet: SubnetDocument, nics: NicDocument[]): Omit<SubnetSpec, 'peers' | 'dhcp'> {
  return {
    id: subnet._id,
    vpc_id: subnet.vpc_id,
    tenant_id: subnet.tenant_id,
    cidr: subnet.cidr,
    gateway_ip: subnet.gateway_ip,
    nat: subnet.nat,
    vni: subnet.vni,
    hosts: nics
      .filter(({ subnet_id }) => subnet_id === subnet._id)
      .map(({ mac_address, ip_address }) => ({ mac_address, ip_address })),
    names: namesIn(subnet._id, nics),
  }
}

/** A member's name resolves to its addresses in this subnet, or to the first of its addresses in another subnet. */
function namesIn(subnetId: string, nics: NicDocument[]): SubnetSpec['names'] {
  return [...Map.groupBy(nics, ({ instance_id }) => instance_id).values()].flatMap((its) => {
    const here = its.filter(({ subnet_id }) => subnet_id === subnetId)
    const shown = here.length ? here : its.slice(0, 1)
    return shown.map(({ instance_name, ip_address }) => ({ name: instance_name, ip_address }))
  })
}

/** `lends`: only one host leases from the range, since hosts do not share their leases. */
function dhcpOf({ dhcp_config: config }: SubnetDocument, lends: boolean): SubnetSpec['dhcp'] {
  if (!config) return null
  const {
    range_start: start,
    range_end: end,
    lease_time_sec,
    dns_servers,
    domain_name,
    static_leases,
  } = config
  const range = lends && start !== null && end !== null ? { start, end } : null
  return { range, lease_time_sec, dns_servers, domain_name, static_leases }
}

/** The reachable hosts with members of a VPC, to notify of a change. The others ask when they report again. */
export async function reachableHosts(vpcId: string): Promise<string[]> {
  const nics = await Nic.find({ vpc_id: vpcId }).setOptions(everyTenant).lean()
  const hosts = (await hostsByVpc(nics)).get(vpcId) ?? []
  const reachable = await Host.find({ _id: { $in: hosts }, unreachable_since: null }, { _id: 1 }).lean()
  return reachable.map(({ _id }) => _id)
}

/** The resolver of an instance: the gateway of its first NIC. Null without NICs. */
export async function resolverOf(
  tenant_id: string,
  instance_id: string,
): Promise<{ dns_server: string; search_domain: string } | null> {
  const nic = await Nic.findOne({ tenant_id, instance_id, wanted: true }).sort({ _id: 1 }).lean()
  const subnet = nic && (await Subnet.findOne({ tenant_id, _id: nic.subnet_id }).lean())
  if (!subnet) return null
  return {
    dns_server: subnet.gateway_ip,
    search_domain: subnet.dhcp_config?.domain_name ?? defaultDomain,
  }
}

/**
 * Cuts an unreachable host off from the VPCs of an instance: the other hosts stop peering with it. The host may still
 * run members that were moved or deleted, and two machines must never answer at one address.
 */
export async function cutOff(instanceId: string, hostId: string): Promise<void> {
  const vpcIds = await Nic.distinct('vpc_id', { instance_id: instanceId }).setOptions(everyTenant)
  await Vpc.updateMany({ _id: { $in: vpcIds } }, { $addToSet: { cut_off_hosts: hostId } }).setOptions({
    ...everyTenant,
    timestamps: false,
  })
}

/**
 * Ends the cut-off of a host that has no foreign things left. Keeps it while something is moving away from the host.
 */
export async function hearAgain(hostId: string): Promise<void> {
  const deaf = { cut_off_hosts: hostId }
  if (!(await Vpc.exists(deaf).setOptions(everyTenant))) return
  const moving = { host_id: hostId, target_host_id: { $ne: null } }
  if ((await Reservation.countDocuments(moving).setOptions(everyTenant)) > 0) return
  await Vpc.updateMany(deaf, { $pull: deaf }).setOptions({ ...everyTenant, timestamps: false })
}

import { createHash } from 'node:crypto'
import type { PeerHost, SubnetSpec } from '../../drivers/networks.ts'
import type { HostNetworks } from '../../lib/network-protocol.ts'
import { Host } from '../compute/hosts.ts'
import { hostsOf, Reservation } from '../compute/reservations.ts'
import { everyTenant } from '../tenant-scope.ts'
import { defaultDomain } from './dhcp.ts'
import { Nic, type NicDocument, pathKind } from './nics.ts'
import { Path, type PathDocument, pathsOf } from './paths.ts'
import { Subnet, type SubnetDocument } from './subnets.ts'
import { Vpc } from './vpcs.ts'

// The wanted VPC state of a host. It is sent as a whole, so a host that missed a change is up to date with the next
// answer.

/** The wanted networks of a host. Equal networks have equal versions. */
export async function networksOf(hostId: string): Promise<HostNetworks> {
  const { here, settled } = await instancesOn(hostId)
  const paths = await Path.find({ instance_id: { $in: settled }, wanted: true })
    .setOptions(everyTenant)
    .sort({ _id: 1 })
    .lean()
  const members = [...here, ...paths.map(({ _id }) => _id)]
  const vpcIds = await Nic.distinct('vpc_id', { instance_id: { $in: members }, wanted: true }).setOptions(
    everyTenant,
  )
  if (vpcIds.length === 0) return versioned({ subnets: [], apart: [], nics: [], paths: [] })
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
  const known = await peerHosts([hostId, ...[...membersHosts.values()].flat()])
  const own = known.get(hostId)
  const joined = (id: string): boolean => own !== undefined && isJoined(own, known.get(id))
  return versioned({
    subnets: subnets.map((subnet) => {
      const hosts = membersHosts.get(subnet.vpc_id) ?? []
      const deaf = cutOffs.get(subnet.vpc_id) ?? []
      const peers = deaf.includes(hostId) ? [] : hosts.filter((id) => id !== hostId && !deaf.includes(id))
      const vpcNics = nics.filter(({ vpc_id }) => vpc_id === subnet.vpc_id)
      return {
        ...describe(subnet, vpcNics),
        peers: peers.filter(joined).flatMap((id) => known.get(id) ?? []),
        dhcp: dhcpOf(subnet, hosts[0] === hostId),
      }
    }),
    apart: [...membersHosts].flatMap(([vpcId, hosts]) => {
      const deaf = cutOffs.get(vpcId) ?? []
      const others = hosts.filter((id) => known.has(id) && !deaf.includes(id))
      return own && others.some((id) => !joined(id)) ? [vpcId] : []
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
    paths: paths.flatMap((path) => describePath(path, nics) ?? []),
  })
}

function describePath(path: PathDocument, nics: NicDocument[]): HostNetworks['paths'][number] | null {
  const { _id: id, nic_id, port, target } = path
  const its = nics.filter(({ instance_id }) => instance_id === id)
  const user = nics.find(({ _id }) => _id === nic_id)
  const near = its.find(({ subnet_id }) => subnet_id === user?.subnet_id)
  const far = its.find(({ subnet_id }) => subnet_id === target.subnet_id)
  if (!user || !near || !far) return null
  return {
    id,
    user: { nic_id, ip_address: user.ip_address },
    port,
    near: endOf(near),
    far: endOf(far),
    target: { ip_address: target.ip_address, port: target.port },
  }
}

const endOf = ({ _id: id, subnet_id, mac_address, ip_address }: NicDocument) => ({
  id,
  subnet_id,
  mac_address,
  ip_address,
})

const versioned = (networks: Omit<HostNetworks, 'version'>): HostNetworks => ({
  version: createHash('sha256').update(JSON.stringify(networks)).digest('hex'),
  ...networks,
})

/**
 * `settled`: those that are here, and not only on their way. During a move a path stays on the host that its instance
 * leaves, because no two hosts may have its addresses.
 */
async function instancesOn(hostId: string): Promise<{ here: string[]; settled: string[] }> {
  const any = { $or: [{ host_id: hostId }, { target_host_id: hostId }] }
  const held = await Reservation.find(any, { host_id: 1 }).setOptions(everyTenant).lean()
  const settled = held.filter(({ host_id }) => host_id === hostId)
  return { here: held.map(({ _id }) => _id), settled: settled.map(({ _id }) => _id) }
}

/** The hosts with members of each VPC, sorted: all hosts get the same order. */
async function hostsByVpc(nics: NicDocument[]): Promise<Map<string, string[]>> {
  const ids = [...new Set(nics.map(({ instance_id }) => instance_id))]
  const held = await Reservation.find({ _id: { $in: ids } }, { host_id: 1, target_host_id: 1 })
    .setOptions(everyTenant)
    .lean()
  const places = new Map(held.map((one) => [one._id, hostsOf(one)]))
  for (const [id, host_id] of await hostsOfPaths(nics)) places.set(id, [host_id])
  const hosts = new Map<string, string[]>()
  for (const [vpcId, members] of Map.groupBy(nics, ({ vpc_id }) => vpc_id)) {
    const all = members.flatMap(({ instance_id }) => places.get(instance_id) ?? [])
    hosts.set(vpcId, [...new Set(all)].toSorted())
  }
  return hosts
}

/** The host of each path with one of these NICs. */
async function hostsOfPaths(nics: NicDocument[]): Promise<[string, string][]> {
  const ids = nics.filter(({ instance_kind }) => instance_kind === pathKind).map((nic) => nic.instance_id)
  if (ids.length === 0) return []
  const paths = await Path.find({ _id: { $in: ids } }, { instance_id: 1 })
    .setOptions(everyTenant)
    .lean()
  const users = { _id: { $in: paths.map(({ instance_id }) => instance_id) } }
  const held = await Reservation.find(users, { host_id: 1 }).setOptions(everyTenant).lean()
  const hostOf = new Map(held.map(({ _id, host_id }) => [_id, host_id]))
  return paths.flatMap(({ _id, instance_id }) => {
    const host_id = hostOf.get(instance_id)
    return host_id ? [[_id, host_id] as [string, string]] : []
  })
}

/** How other hosts reach each host that they can reach. */
async function peerHosts(hostIds: string[]): Promise<Map<string, PeerHost>> {
  const hosts = await Host.find({ _id: { $in: hostIds } }, { underlay_address: 1, tunnel_key: 1 }).lean()
  return new Map(
    hosts.flatMap(({ _id, underlay_address: address, tunnel_key }) =>
      address ? [[_id, { address, tunnel_key }]] : [],
    ),
  )
}

/** Both have a tunnel, or neither: a host with one sends nothing beside it, and takes nothing that comes so. */
const isJoined = (one: PeerHost, other: PeerHost | undefined): boolean =>
  other !== undefined && (one.tunnel_key === null) === (other.tunnel_key === null)

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
  const named = nics.filter(({ instance_kind }) => instance_kind !== pathKind)
  return [...Map.groupBy(named, ({ instance_id }) => instance_id).values()].flatMap((its) => {
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

/** The VPCs of an instance: those of its NICs, and those to which its paths lead. */
async function vpcsOf(instanceId: string): Promise<string[]> {
  const members = [instanceId, ...(await pathsOf(instanceId))]
  return Nic.distinct('vpc_id', { instance_id: { $in: members } }).setOptions(everyTenant)
}

/** The reachable hosts with members of any VPC of an instance. */
export async function reachableHostsOf(instanceId: string): Promise<string[]> {
  const hosts = await Promise.all((await vpcsOf(instanceId)).map(reachableHosts))
  return [...new Set(hosts.flat())]
}

/**
 * Cuts an unreachable host off from the VPCs of an instance: the other hosts stop peering with it. The host may still
 * run members that were moved or deleted, and two machines must never answer at one address.
 */
export async function cutOff(instanceId: string, hostId: string): Promise<void> {
  const vpcIds = await vpcsOf(instanceId)
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

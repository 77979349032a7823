import { EngineRefused } from '../errors.ts'
import { parseCidr } from '../../lib/ipv4.ts'
import {
  addressLines,
  batch,
  floodPeers,
  type Lines,
  type Link,
  type Links,
  linksOf,
  lookAt,
  type Neighbour,
  type Seen,
} from './commands.ts'
import { applyResolver, endElsewhere, endResolver, findAnyResolver } from './dnsmasq.ts'
import type { Host } from './host.ts'
import { isNamespace, makeNamespace, vpcNamespaces } from './namespaces.ts'
import { ownEnd, peerEnds } from './tunnel.ts'
import { type Uplink, uplinkLines } from './uplinks.ts'
import { applyVpc, removeVpc, subnetsOf } from './vpcs.ts'
import type { SubnetSpec } from '../networks.ts'

/** See NetworkDriver.applySubnet. */
export async function applySubnet(host: Host, spec: SubnetSpec): Promise<void> {
  const there = await host.records.subnet(spec.id)
  if (there && there.vpc_id !== spec.vpc_id) throw new EngineRefused('A subnet stays in its VPC')
  await host.records.saveSubnet(spec)
  const namespace = host.names.vpc(spec.vpc_id)
  const subnets = await subnetsOf(host, spec.vpc_id)
  const folders = subnets.map(({ id }) => host.records.subnetFolder(id))
  await makeNamespace(namespace, () => findAnyResolver(folders))
  await Promise.all(folders.map((folder) => endElsewhere(folder, namespace)))

  const before = await lookAt(namespace)
  // Apply the rules before anything can pass. They name links that need not exist yet.
  const { uplink, changed } = await applyVpc(host, spec.vpc_id, subnets, before.links)
  const fresh = await applyVxlan(host, spec, before.links)
  const seen = changed || fresh ? await lookAt(namespace) : before
  const index = await applyInside(host, spec, uplink, seen)
  const folder = host.records.subnetFolder(spec.id)
  const { mtu, resolvers } = host
  await applyResolver(spec, { folder, namespace, bridge: host.names.bridge(spec.id), mtu, resolvers }, index)
}

/** See NetworkDriver.removeSubnet. The record is removed last, so that a repeated call finds what is left. */
export async function removeSubnet(host: Host, id: string): Promise<void> {
  try {
    await removeWithRecord(host, id)
  } finally {
    host.left.delete(id)
  }
}

async function removeWithRecord(host: Host, id: string): Promise<void> {
  const { names, records } = host
  const spec = await records.subnet(id)
  const vpcId = spec?.vpc_id ?? (await vpcOfBridge(host, id))
  await endResolver(records.subnetFolder(id))
  const namespace = vpcId && names.vpc(vpcId)
  if (namespace && (await isNamespace(namespace))) {
    const links = await linksOf(namespace)
    const bridge = names.bridge(id)
    const own = [...links.values()].filter(
      ({ ifname, master }) => [bridge, names.vxlan(id)].includes(ifname) || master === bridge,
    )
    await batch(
      'ip',
      namespace,
      own.map(({ ifname }) => ['link', 'delete', ifname]),
    )
  }
  for (const nic of await records.nics()) if (nic.subnet_id === id) await records.removeNic(nic.id)

  if (vpcId) {
    const rest = (await subnetsOf(host, vpcId)).filter((subnet) => subnet.id !== id)
    if (rest.length > 0) await applyVpc(host, vpcId, rest, await linksOf(host.names.vpc(vpcId)), id)
    else await removeVpc(host, vpcId, id)
  }
  await records.removeSubnet(id)
}

/**
 * The VXLAN link to other hosts: made in the host's namespace, where its packets travel, and moved into the VPC's.
 * Returns whether anything changed.
 */
async function applyVxlan(host: Host, spec: SubnetSpec, inside: Links): Promise<boolean> {
  const { names, vxlanPort, mtu } = host
  const local = ownEnd(host)
  const name = names.vxlan(spec.id)
  const namespace = names.vpc(spec.vpc_id)
  const there = inside.get(name)
  const data = there?.linkinfo?.info_data
  const its = data?.['local6'] ?? data?.['local']
  if (data && data['id'] === spec.vni && its === local && data['port'] === vxlanPort) return false
  if (there) await batch('ip', namespace, [['link', 'delete', name]])
  if (!local) return there !== undefined
  // The tunnel finds what was changed on the way, so packets in it need no checksum.
  const unchecked = host.tunnel ? ['udp6zerocsumtx', 'udp6zerocsumrx'] : []
  const kind = ['type', 'vxlan', 'id', spec.vni, 'dstport', vxlanPort, 'local', local, ...unchecked]
  await batch('ip', host.namespace, [['link', 'add', name, 'netns', namespace, 'mtu', mtu, ...kind]])
  return true
}

/**
 * Makes the subnet's bridge with its address, its VXLAN link and its gateway's neighbours. Returns the bridge's index.
 */
async function applyInside(
  host: Host,
  spec: SubnetSpec,
  uplink: Uplink | null,
  { links, routes, neighbours }: Seen,
): Promise<number> {
  const { names, mtu } = host
  const namespace = names.vpc(spec.vpc_id)
  const flooded = await floodPeers(namespace)
  const lines: Lines = []
  const label = (name: string, kind: 'vpc' | 'subnet', id: string, settings: (string | number)[]) => {
    const link = links.get(name)
    const set = link?.ifalias === names.label(kind, id) && link.flags.includes('UP') && hasAll(link, settings)
    if (!set) lines.push(['link', 'set', name, 'alias', names.label(kind, id), ...settings, 'up'])
  }

  label('lo', 'vpc', spec.vpc_id, [])
  const bridge = names.bridge(spec.id)
  if (!links.has(bridge)) {
    // No forward delay: a VM's first DHCP request would be lost. A fixed MAC address: by default a bridge takes over
    // one of its members'.
    const kind = ['type', 'bridge', 'forward_delay', 0, 'mcast_snooping', 0]
    lines.push(['link', 'add', bridge, 'address', names.gatewayMac(spec.id), ...kind])
  }
  label(bridge, 'subnet', spec.id, ['mtu', mtu])
  const gateway = `${spec.gateway_ip}/${parseCidr(spec.cidr)?.prefix}`
  lines.push(...addressLines(links.get(bridge), bridge, gateway))
  if (host.underlayAddress) label(names.vxlan(spec.id), 'subnet', spec.id, ['mtu', mtu, 'master', bridge])
  if (uplink) lines.push(...uplinkLines(uplink, links, routes, names.label('vpc', spec.vpc_id)))
  lines.push(...neighbourLines(bridge, spec, neighbours))

  const vxlan = names.vxlan(spec.id)
  const peers = new Set(peerEnds(host, spec.peers))
  const present = new Set(flooded.filter(({ ifname }) => ifname === vxlan).map(({ dst }) => dst))
  const fdb = (verb: string, dst: string) => ['fdb', verb, '00:00:00:00:00:00', 'dev', vxlan, 'dst', dst]
  await batch('ip', namespace, lines)
  await batch('bridge', namespace, [
    ...[...present].filter((dst) => !peers.has(dst)).map((dst) => fdb('delete', dst)),
    ...[...peers].filter((dst) => !present.has(dst)).map((dst) => fdb('append', dst)),
  ])
  return (links.get(bridge) ?? (await linksOf(namespace)).get(bridge))?.ifindex ?? 0
}

const hasAll = (link: Link, settings: (string | number)[]): boolean =>
  settings.every((word, i) => i % 2 === 1 || link[word as 'mtu' | 'master'] === settings[i + 1])

/**
 * A gateway never broadcasts ARP to other hosts: members there would take the request for one of their own gateway,
 * which has the same address.
 */
function neighbourLines(bridge: string, spec: SubnetSpec, present: Neighbour[]): Lines {
  const known = [...(spec.dhcp?.static_leases ?? []), ...spec.hosts]
  const wanted = new Map(known.map((host) => [host.ip_address, host.mac_address.toLowerCase()]))
  const have = new Map(present.filter(({ dev }) => dev === bridge).map(({ dst, lladdr }) => [dst, lladdr]))
  const entry = (verb: string, dst: string, ...rest: string[]) => [
    'neighbour',
    verb,
    dst,
    'dev',
    bridge,
    ...rest,
  ]
  return [
    ...[...have.keys()].filter((dst) => !wanted.has(dst)).map((dst) => entry('delete', dst)),
    ...[...wanted]
      .filter(([dst, address]) => have.get(dst) !== address && dst !== spec.gateway_ip)
      .map(([dst, address]) => entry('replace', dst, 'lladdr', address, 'nud', 'permanent')),
  ]
}

/** Finds the VPC of a subnet without a record. */
async function vpcOfBridge({ names }: Host, id: string): Promise<string | null> {
  for (const namespace of await vpcNamespaces(names)) {
    const links = await linksOf(namespace)
    if (links.has(names.bridge(id))) return names.readLabel(links.get('lo')?.ifalias)?.id ?? null
  }
  return null
}

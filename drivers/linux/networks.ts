import { isIPv4 } from 'node:net'
import { join } from 'node:path'
import { withoutNested } from '../../lib/ipv4.ts'
import { makeNamedQueues } from '../../lib/queue.ts'
import { bytesOf, type Links, linksOf } from './commands.ts'
import { findResolvers } from './dnsmasq.ts'
import type { Host, TunnelSettings } from './host.ts'
import { Names } from './names.ts'
import { pathNamespaces, vpcNamespaces } from './namespaces.ts'
import { attach, detach, namespaceOfNic } from './nics.ts'
import { applyPath, pathReaches, removePath } from './paths.ts'
import { Records } from './records.ts'
import { hasHostRules, neverOutside } from './rules.ts'
import { applySubnet, removeSubnet } from './subnets.ts'
import { tunnelPrograms } from './tunnel.ts'
import { checkNic, checkPath, checkSettings, checkSubnet } from './checks.ts'
import type { NetworkDriver, NetworkThing } from '../networks.ts'

export interface LinuxNetworkSettings {
  /**
   * The host's id: several hosts may share a machine, and their things stay separate. Letters, digits, `_`, `.`, `-`.
   */
  host: string
  /**
   * Holds the applied descriptions and dnsmasq's files. Absolute path; every parent must be enterable by all users,
   * because dnsmasq drops root.
   */
  stateFolder: string
  /** The host's namespace in /run/netns; by default this process's. */
  hostNamespace?: string
  /** The address for other hosts. Null: a single host, whose subnets stay local. */
  underlayAddress: string | null
  /** Resolvers for subnets with `nat`. IPv6 and loopback addresses are ignored: a VPC cannot reach them. */
  resolvers: string[]
  /** Networks that members may not reach, besides this host and its underlay: those of the platform's services. */
  refused: string[]
  /** Each VPC with `nat` takes four addresses per host. Must not be used elsewhere. */
  uplinkPool?: string
  /** Null: VXLAN goes over the underlay as it is, which must then keep tenants and strangers out. */
  tunnel?: TunnelSettings | null
  /** UDP port for hosts only: packets from others are dropped. Two hosts in one namespace need two ports. */
  vxlanPort?: number
  /** MTU of the members' interfaces: the underlay's minus 130 with a tunnel, minus 50 without. */
  mtu?: number
}

/**
 * Networks on the Linux kernel: a VPC is a network namespace; a subnet is a bridge in it with a dnsmasq, and VXLAN
 * between hosts, in a tunnel. Needs root, iproute2, util-linux, nftables and dnsmasq; iptables if a container engine uses
 * it; for the tunnel `wg`, and wireguard-go if the kernel has no WireGuard.
 * Throws EngineRefused for an invalid setting.
 */
export function makeLinuxNetworks(settings: LinuxNetworkSettings): NetworkDriver {
  const names = new Names(settings.host)
  const uplinkPool = settings.uplinkPool ?? '100.64.0.0/10'
  checkSettings({ ...settings, uplinkPool })
  const tunnel = settings.underlayAddress && settings.tunnel ? { ...settings.tunnel, applied: null } : null
  const host: Host = {
    names,
    records: new Records(settings.stateFolder, names),
    namespace: settings.hostNamespace ?? null,
    underlayAddress: settings.underlayAddress,
    tunnel,
    resolvers: settings.resolvers.filter((address) => isIPv4(address) && !address.startsWith('127.')),
    refused: withoutNested([...neverOutside(uplinkPool), ...settings.refused]),
    uplinkPool,
    vxlanPort: settings.vxlanPort ?? 4789,
    mtu: settings.mtu ?? usualMtu(tunnel !== null),
    inTurn: makeNamedQueues(),
    left: new Set(),
  }

  return {
    async applySubnet(spec) {
      checkSubnet(spec)
      await host.inTurn(`vpc ${spec.vpc_id}`, () => applySubnet(host, spec))
    },

    async removeSubnet(id) {
      const vpc = (await host.records.subnet(id))?.vpc_id ?? id
      await host.inTurn(`vpc ${vpc}`, () => removeSubnet(host, id))
    },

    async attachNic(spec) {
      checkNic(spec)
      // Queue by member: two NICs of one member must not choose the same name.
      const place = spec.into === 'tap' ? spec.id : Object.values(spec.into).join()
      return host.inTurn(`nic ${spec.id}`, () => host.inTurn(`member ${place}`, () => attach(host, spec)))
    },

    detachNic: (id) => host.inTurn(`nic ${id}`, () => detach(host, id)),

    async nicTraffic(id) {
      const namespace = await namespaceOfNic(host, id)
      const bytes = namespace && (await bytesOf(namespace, names.nic(id)))
      // Swap directions: what the bridge's end sends, the member receives.
      return bytes ? { rx_bytes: bytes.tx.bytes, tx_bytes: bytes.rx.bytes } : null
    },

    async applyPath(spec) {
      checkPath(spec)
      await host.inTurn(`path ${spec.id}`, () => applyPath(host, spec))
    },

    removePath: (id) => host.inTurn(`path ${id}`, () => removePath(host, id)),

    pathReaches: (id) => pathReaches(host, id),

    async known() {
      const { records } = host
      const [subnets, nics, paths] = await Promise.all([records.subnets(), records.nics(), records.paths()])
      const vpcs = new Map(subnets.map(({ id, vpc_id }) => [id, vpc_id]))
      return {
        subnets: subnets.map(({ id, vpc_id }) => ({ id, vpc_id })),
        nics: nics.map(({ id, subnet_id }) => ({ id, vpc_id: vpcs.get(subnet_id) ?? '' })),
        paths: paths.map(({ id }) => id),
      }
    },

    list: () => list(host),
  }
}

/**
 * For an underlay of 1500. VXLAN adds 50 bytes over IPv4, and 70 over the tunnel's IPv6; WireGuard adds 60.
 */
export const usualMtu = (inTunnel: boolean): number => 1500 - (inTunnel ? 130 : 50)

async function list({ names, records, namespace }: Host): Promise<NetworkThing[]> {
  const found: NetworkThing[] = []
  for (const name of await vpcNamespaces(names)) {
    const links = await linksOf(name)
    const of = names.readLabel(links.get('lo')?.ifalias) ?? { kind: 'vpc' as const, id: null }
    found.push({ kind: 'namespace', name, of })
    found.push(...linksIn(links, names))
  }
  for (const name of await pathNamespaces(names)) {
    const of = names.readLabel((await linksOf(name)).get('lo')?.ifalias) ?? {
      kind: 'path' as const,
      id: null,
    }
    found.push({ kind: 'namespace', name, of })
  }
  found.push(...linksIn(await linksOf(namespace), names))
  const [subnets, nics, paths] = await Promise.all([records.subnets(), records.nics(), records.paths()])
  for (const { pid, config } of await findResolvers(records.subnetsFolder)) {
    const id = subnets.find((subnet) => config.startsWith(`${records.subnetFolder(subnet.id)}/`))?.id ?? null
    found.push({ kind: 'process', name: String(pid), of: { kind: 'subnet', id } })
  }
  for (const pid of await tunnelPrograms(names))
    found.push({ kind: 'process', name: String(pid), of: { kind: 'host', id: names.host } })
  if (await hasHostRules(namespace, names)) {
    found.push({ kind: 'rules', name: names.table, of: { kind: 'host', id: names.host } })
  }
  for (const file of await records.files()) {
    const subnet = subnets.find(({ id }) => records.subnetFolder(id) === file)
    const nic = nics.find(({ id }) => file.endsWith(join('nics', `${names.nic(id)}.json`)))
    const path = paths.find(({ id }) => file.endsWith(join('paths', `${names.path(id)}.json`)))
    const kind = file.includes('/nics/') ? 'nic' : file.includes('/paths/') ? 'path' : 'subnet'
    found.push({ kind: 'file', name: file, of: { kind, id: (subnet ?? nic ?? path)?.id ?? null } })
  }
  return found
}

function linksIn(links: Links, names: Names): NetworkThing[] {
  return [...links.values()].flatMap(({ ifname, ifalias }): NetworkThing[] => {
    if (!ifname.startsWith(names.prefix)) return []
    const of = names.readLabel(ifalias) ?? { kind: kindOf(ifname, names), id: null }
    return [{ kind: 'link', name: ifname, of }]
  })
}

/** The kind of a link without a label, left by a killed call. */
function kindOf(link: string, names: Names): 'vpc' | 'subnet' | 'nic' | 'host' {
  const letter = link[names.prefix.length]
  if (link.startsWith(names.tunnel)) return 'host'
  return letter === 'n' ? 'nic' : letter === 'u' ? 'vpc' : 'subnet'
}

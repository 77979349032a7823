import { isIPv4 } from 'node:net'
import { join } from 'node:path'
import { withoutNested } from '../../lib/ipv4.ts'
import { makeNamedQueues } from '../../lib/queue.ts'
import { bytesOf, type Links, linksOf } from './commands.ts'
import { findResolvers } from './dnsmasq.ts'
import type { Host } from './host.ts'
import { Names } from './names.ts'
import { vpcNamespaces } from './namespaces.ts'
import { attach, detach, namespaceOfNic } from './nics.ts'
import { Records } from './records.ts'
import { hasHostRules, neverOutside } from './rules.ts'
import { applySubnet, removeSubnet } from './subnets.ts'
import { checkNic, checkSettings, checkSubnet } from './checks.ts'
import type { NetworkDriver, NetworkThing } from '../networks.ts'

export interface LinuxNetworkSettings {
  /** Which host this is: several may share a machine, and their things never mix. Letters, digits, `_`, `.`, `-`. */
  host: string
  /**
   * Where it keeps what it was asked for, and dnsmasq its files. Absolute; each folder above it may be entered by all
   * users, since dnsmasq gives up root.
   */
  stateFolder: string
  /** The host's namespace below /run/netns; without it the one that we are in. */
  hostNamespace?: string
  /** By which the other hosts reach this one. Null: a host alone, whose subnets end with it. */
  underlayAddress: string | null
  /** Asked for names by subnets with `nat`. IPv6 and loopback addresses are out of a VPC's reach, and left out. */
  resolvers: string[]
  /** What members may not reach beside this host and its underlay: where the platform's own services are. */
  refused: string[]
  /** Each VPC with `nat` takes four addresses of it on each host. Not in use elsewhere. */
  uplinkPool?: string
  /** UDP, and the hosts' own: what others send to it is dropped. Two hosts in one namespace need two. */
  vxlanPort?: number
  /** Of the members' interfaces: the underlay's less 50. */
  mtu?: number
}

/**
 * Networks by the Linux kernel: a VPC is a network namespace, a subnet a bridge in it and VXLAN between hosts, with a
 * dnsmasq. Needs root, iproute2, util-linux, nftables and dnsmasq; iptables where an engine uses it. Throws
 * EngineRefused when a setting is wrong.
 */
export function makeLinuxNetworks(settings: LinuxNetworkSettings): NetworkDriver {
  const names = new Names(settings.host)
  const uplinkPool = settings.uplinkPool ?? '100.64.0.0/10'
  checkSettings({ ...settings, uplinkPool })
  const host: Host = {
    names,
    records: new Records(settings.stateFolder, names),
    namespace: settings.hostNamespace ?? null,
    underlayAddress: settings.underlayAddress,
    resolvers: settings.resolvers.filter((address) => isIPv4(address) && !address.startsWith('127.')),
    refused: withoutNested([...neverOutside(uplinkPool), ...settings.refused]),
    uplinkPool,
    vxlanPort: settings.vxlanPort ?? 4789,
    mtu: settings.mtu ?? 1450,
    inTurn: makeNamedQueues(),
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
      // Of two for one process each needs a name that is free there.
      const place = spec.into === 'tap' ? '' : spec.into.pid
      return host.inTurn(`nic ${spec.id}`, () =>
        host.inTurn(`process ${place || spec.id}`, () => attach(host, spec)),
      )
    },

    detachNic: (id) => host.inTurn(`nic ${id}`, () => detach(host, id)),

    async nicTraffic(id) {
      const namespace = await namespaceOfNic(host, id)
      const bytes = namespace && (await bytesOf(namespace, names.nic(id)))
      // What the bridge's end sends, the member receives.
      return bytes ? { rx_bytes: bytes.tx.bytes, tx_bytes: bytes.rx.bytes } : null
    },

    async known() {
      const [subnets, nics] = await Promise.all([host.records.subnets(), host.records.nics()])
      return { subnets: subnets.map(({ id }) => id), nics: nics.map(({ id }) => id) }
    },

    list: () => list(host),
  }
}

async function list({ names, records, namespace }: Host): Promise<NetworkThing[]> {
  const found: NetworkThing[] = []
  for (const name of await vpcNamespaces(names)) {
    const links = await linksOf(name)
    const of = names.readLabel(links.get('lo')?.ifalias) ?? { kind: 'vpc' as const, id: null }
    found.push({ kind: 'namespace', name, of })
    found.push(...linksIn(links, names))
  }
  found.push(...linksIn(await linksOf(namespace), names))
  const [subnets, nics] = await Promise.all([records.subnets(), records.nics()])
  for (const { pid, config } of await findResolvers(records.subnetsFolder)) {
    const id = subnets.find((subnet) => config.startsWith(`${records.subnetFolder(subnet.id)}/`))?.id ?? null
    found.push({ kind: 'process', name: String(pid), of: { kind: 'subnet', id } })
  }
  if (await hasHostRules(namespace, names)) {
    found.push({ kind: 'rules', name: names.table, of: { kind: 'host', id: names.host } })
  }
  for (const file of await records.files()) {
    const subnet = subnets.find(({ id }) => records.subnetFolder(id) === file)
    const nic = nics.find(({ id }) => file.endsWith(join('nics', `${names.nic(id)}.json`)))
    const kind = file.includes('/nics/') ? 'nic' : 'subnet'
    found.push({ kind: 'file', name: file, of: { kind, id: (subnet ?? nic)?.id ?? null } })
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

/** A link that has no label yet: its maker was killed. */
function kindOf(link: string, names: Names): 'vpc' | 'subnet' | 'nic' {
  const letter = link[names.prefix.length]
  return letter === 'n' ? 'nic' : letter === 'u' ? 'vpc' : 'subnet'
}

import { HostNotEquipped } from '../errors.ts'
import { runIn, setRules } from './commands.ts'
import { type Names, uplinkInside } from './names.ts'
import type { SubnetSpec } from '../networks.ts'

// The firewall: one table in each VPC's namespace and one in the host's, each replaced as a whole. A separate table
// works beside any other rules: a packet that it drops stays dropped, even if another table accepts it.

export interface HostRules {
  names: Names
  /** Networks that no member may reach, in CIDR notation. */
  refused: string[]
  /** The upstream resolvers of the subnets' resolvers; always reachable. */
  resolvers: string[]
  /** The port of VXLAN; null on a host without an underlay. */
  vxlanPort: number | null
  /** Through which alone VXLAN goes; null if that is the underlay itself. `end` is this host's address in it. */
  tunnel: { device: string; end: string; port: number } | null
}

/**
 * Addresses that are never outside: other uplinks and other VPCs, link-local (a cloud's metadata service), multicast,
 * and the host's own.
 */
export const neverOutside = (uplinkPool: string): string[] => [
  uplinkPool,
  '0.0.0.0/8',
  '127.0.0.0/8',
  '169.254.0.0/16',
  '224.0.0.0/3',
]

export const set = (values: string[]): string => `{ ${[...new Set(values)].toSorted().join(', ')} }`

/** A line with a set. Empty for an empty set, which nftables rejects. */
export const withSet = (values: string[], line: (set: string) => string): string =>
  values.length === 0 ? '' : line(set(values))

export function table(family: 'ip' | 'ip6' | 'bridge', name: string, comment: string, body: string): string {
  const lines = body.split('\n').flatMap((line) => (line.trim() ? [line] : []))
  // Create first: only an existing table can be deleted.
  return [
    `table ${family} ${name}`,
    `delete table ${family} ${name}`,
    `table ${family} ${name} {`,
    `comment "${comment}"`,
    ...lines,
    '}',
    '',
  ].join('\n')
}

/** The source address of a DHCP client without a lease. */
const unaddressed = '0.0.0.0'

/**
 * A VPC's rules: its subnets reach each other, subnets with `nat` reach the outside, and no member can use another's
 * address.
 */
export function vpcRules(
  vpcId: string,
  subnets: SubnetSpec[],
  { names, refused, resolvers }: Pick<HostRules, 'names' | 'refused' | 'resolvers'>,
): string {
  const comment = names.label('vpc', vpcId)
  const bridges = names.all('s')
  const vxlans = names.all('x')
  const nat = subnets.filter((subnet) => subnet.nat)
  const natCidrs = nat.map(({ cidr }) => cidr)
  const gateways = subnets.map(({ gateway_ip }) => gateway_ip)
  const natGateways = nat.map(({ gateway_ip }) => gateway_ip)
  const askResolvers = (from: string): string =>
    withSet(resolvers, (to) => `ip saddr ${from} ip daddr ${to} meta l4proto { tcp, udp } th dport 53 accept`)

  const routed = table(
    'ip',
    names.table,
    comment,
    `
    chain outside {
      ${withSet(refused, (to) => `ip daddr ${to} drop`)}
      accept
    }
    chain prerouting {
      type filter hook prerouting priority mangle;
      iifname "${bridges}" ip saddr != ${set([...subnets.map(({ cidr }) => cidr), unaddressed])} counter drop
    }
    chain input {
      type filter hook input priority filter; policy drop;
      iifname "lo" accept
      iifname "${bridges}" accept
      ct state established,related accept
    }
    chain forward {
      type filter hook forward priority filter; policy drop;
      iifname "${bridges}" oifname "${bridges}" accept
      iifname "${uplinkInside}" ct state established,related accept
      ${nat.map(({ id, cidr }) => `iifname "${names.bridge(id)}" ip saddr ${cidr} oifname "${uplinkInside}" jump outside`).join('\n')}
    }
    chain output {
      type filter hook output priority filter; policy accept;
      oifname != "${uplinkInside}" accept
      ct state established,related accept
      ${withSet(natGateways, askResolvers)}
      ${withSet(natGateways, (from) => `ip saddr ${from} jump outside`)}
      drop
    }
    chain postrouting {
      type nat hook postrouting priority srcnat;
      ${withSet(natCidrs, (from) => `ip saddr ${from} oifname "${uplinkInside}" masquerade`)}
    }`,
  )
  // All hosts have the gateways, so a member must find its own host's, and get its lease there.
  const bridged = table(
    'bridge',
    names.table,
    comment,
    `
    chain postrouting {
      type filter hook postrouting priority 0;
      ${withSet(gateways, (own) => `oifname "${vxlans}" arp saddr ip ${own} drop`)}
      ${withSet(gateways, (own) => `oifname "${vxlans}" arp daddr ip ${own} drop`)}
      oifname "${vxlans}" udp dport { 67, 68 } drop
    }`,
  )
  return routed + bridged
}

/** The addresses of other hosts from which a subnet accepts packets: in the tunnel, or on the underlay. */
export interface Peers {
  vni: number
  ends: string[]
}

/**
 * The host's rules. They repeat a VPC's rules, because tenants' packets come from the VPC's namespace, and reserve each
 * subnet's VNI for the hosts that share it. They run before other tables: an engine that publishes a port rewrites
 * addresses and accepts.
 */
function hostRules(
  { names, refused, resolvers, vxlanPort, tunnel }: HostRules,
  here: { uplinks: string[]; peers: Peers[]; outside: string[] },
): string {
  const uplinks = names.all('u')
  // Per subnet: a host may be a peer of one subnet and not of another. The VXLAN header follows UDP's 8 bytes. Other
  // VNIs pass: the kernel drops those without a link, and the rest belong to another platform on this machine.
  const heard = here.peers.flatMap(({ vni, ends }) => [
    tunnel ? '' : withSet(ends, (from) => `@th,96,24 ${vni} ip saddr ${from} return`),
    `@th,96,24 ${vni} drop`,
  ])
  // Whatever address they have: another host's may lie behind the default route.
  const ports = [vxlanPort, tunnel?.port].filter((port) => typeof port === 'number').map(String)
  const dns = withSet(
    resolvers,
    (to) => `iifname "${uplinks}" ip daddr ${to} meta l4proto { tcp, udp } th dport 53 accept`,
  )
  const devices = here.outside.map((device) => `"${device}"`)
  const routed = table(
    'ip',
    names.table,
    names.label('host', names.host),
    `
    chain underlay {
      ${heard.join('\n')}
    }
    chain input {
      type filter hook input priority mangle;
      ${vxlanPort ? `udp dport ${vxlanPort} jump underlay` : ''}
      ${dns}
      iifname "${uplinks}" drop
    }
    chain forward {
      type filter hook forward priority mangle;
      oifname "${uplinks}" ct state established,related accept
      oifname "${uplinks}" drop
      iifname != "${uplinks}" accept
      ${withSet(ports, (to) => `udp dport ${to} drop`)}
      ${dns}
      ${withSet(refused, (to) => `ip daddr ${to} drop`)}
      ${devices.length > 0 ? `oifname != ${set(devices)} drop` : 'drop'}
    }
    chain postrouting {
      type nat hook postrouting priority srcnat;
      ${withSet(here.uplinks, (from) => `ip saddr ${from} oifname != "${uplinks}" masquerade`)}
    }`,
  )
  return routed + (tunnel ? tunnelRules(names, vxlanPort, tunnel, here.peers) : noTable('ip6', names))
}

/**
 * Nothing but VXLAN passes the tunnel, and VXLAN passes nothing else: the kernel takes packets for the tunnel's address
 * from any link, and sends those from it by any route if the tunnel is missing.
 */
function tunnelRules(
  names: Names,
  vxlanPort: number | null,
  { device, end }: NonNullable<HostRules['tunnel']>,
  peers: Peers[],
): string {
  const heard = peers.flatMap(({ vni, ends }) => [
    withSet(ends, (from) => `@th,96,24 ${vni} iifname "${device}" ip6 saddr ${from} return`),
    `@th,96,24 ${vni} drop`,
  ])
  return table(
    'ip6',
    names.table,
    names.label('host', names.host),
    `
    chain underlay {
      ${heard.join('\n')}
    }
    chain input {
      type filter hook input priority mangle;
      udp dport ${vxlanPort} jump underlay
      iifname "${device}" udp dport ${vxlanPort} accept
      iifname "${device}" drop
    }
    chain forward {
      type filter hook forward priority mangle;
      iifname "${device}" drop
      oifname "${device}" drop
    }
    chain output {
      type filter hook output priority filter;
      ip6 saddr ${end} oifname != "${device}" drop
    }`,
  )
}

const noTable = (family: 'ip' | 'ip6', { table: name }: Names): string =>
  `table ${family} ${name}\ndelete table ${family} ${name}\n`

const withoutRules = (names: Names): string => noTable('ip', names) + noTable('ip6', names)

export async function setHostRules(
  namespace: string | null,
  rules: HostRules,
  here: Parameters<typeof hostRules>[1],
): Promise<void> {
  await setRules(namespace, hostRules(rules, here), ['ipv4/ip_forward=1'])
  await letForwarded(namespace, rules.names, true)
}

export async function removeHostRules(namespace: string | null, names: Names): Promise<void> {
  await setRules(namespace, withoutRules(names))
  await letForwarded(namespace, names, false)
}

export async function hasHostRules(namespace: string | null, names: Names): Promise<boolean> {
  const tables = await runIn(namespace, 'nft', ['list', 'tables'])
  return tables.split('\n').includes(`table ip ${names.table}`)
}

/**
 * An engine on the host may make iptables drop all unknown forwarding, so accept the uplinks there. Does nothing if
 * iptables is missing or does not filter forwarding: then there is no such engine.
 */
async function letForwarded(namespace: string | null, names: Names, wanted: boolean): Promise<void> {
  const saved = await runIn(namespace, 'iptables-save', ['-t', 'filter']).catch((error: unknown) => {
    if (error instanceof HostNotEquipped) return ''
    throw error
  })
  const comment = names.label('host', names.host)
  const present = saved.split('\n').filter((line) => line.includes(comment))
  const change = (verb: string, rule: string[]) =>
    runIn(namespace, 'iptables', ['--wait', verb, 'FORWARD', ...rule])
  if (!wanted) {
    for (const line of present) await change('-D', line.replaceAll('"', '').split(' ').slice(2))
    return
  }
  if (!/^:FORWARD DROP|^-A FORWARD /m.test(saved) || present.length === 2) return
  for (const end of ['-i', '-o']) {
    const there = present.some((line) => line.includes(` ${end} `))
    const named = ['-m', 'comment', '--comment', comment]
    if (!there) await change('-I', [end, `${names.prefix}u+`, ...named, '-j', 'ACCEPT'])
  }
}

import { existsSync } from 'node:fs'
import { EngineRefused, HostNotEquipped } from '../errors.ts'
import { parseCidr, withoutNested } from '../../lib/ipv4.ts'
import { checkSettings } from './checks.ts'
import { type Link, lookAt, type Route, runIn, setRules } from './commands.ts'
import { Names } from './names.ts'
import { neverOutside, set, table, withSet } from './rules.ts'

// Containers without NICs are on a bridge of an engine. A fence is that bridge's firewall: two tables of the platform's
// own, replaced as a whole. They work beside an engine's rules, because a packet that they drop stays dropped.

export interface Fence {
  /** The host's id: several hosts may share a machine, and even a bridge. */
  host: string
  /** The host's namespace in /run/netns; null for this process's. */
  namespace: string | null
  bridge: string
  /** Networks behind the default route that containers may not reach, in CIDR notation. */
  refused: string[]
  /** Resolvers that containers may ask on port 53, wherever they are. */
  resolvers: string[]
  /** UDP ports of the hosts among themselves: of VXLAN, and of the tunnel. */
  hostPorts: number[]
  uplinkPool?: string
}

// What passes between two ports of a bridge meets these rules too. The kernel's module br_netfilter has the settings.
const settings = ['bridge/bridge-nf-call-iptables=1', 'bridge/bridge-nf-call-ip6tables=1']

const tableOf = (host: string): string => `${new Names(host).table}_fence`

/**
 * Makes the rules, or makes them again. Needs root and nftables. Throws EngineRefused if the bridge is not in the host's
 * namespace, HostNotEquipped, NotPermitted.
 */
export async function applyFence(fence: Fence): Promise<void> {
  const uplinkPool = fence.uplinkPool ?? '100.64.0.0/10'
  checkSettings({ ...fence, uplinkPool })
  const { links, routes } = await lookAt(fence.namespace)
  const bridge = links.get(fence.bridge)
  const inside = bridge && networkOf(bridge)
  if (!inside)
    throw new EngineRefused(
      `The engine’s bridge ${fence.bridge} is not in the network namespace of this host`,
    )
  if (!existsSync('/proc/sys/net/bridge')) throw new HostNotEquipped('the kernel module br_netfilter')
  const near = [...neverOutside(uplinkPool), ...nearby(routes)]
  await setRules(fence.namespace, rulesOf(fence, inside, near, routes), settings)
}

export async function removeFence({ host, namespace }: Pick<Fence, 'host' | 'namespace'>): Promise<void> {
  const name = tableOf(host)
  const families = ['ip', 'ip6'].map((family) => `table ${family} ${name}\ndelete table ${family} ${name}\n`)
  await runIn(namespace, 'nft', ['-f', '-'], families.join(''))
}

function networkOf({ addr_info }: Link): string | null {
  const address = addr_info.find(({ family }) => family === 'inet')
  return address ? `${address.local}/${address.prefixlen}` : null
}

/**
 * All that the host reaches by another than a default route: the network between the hosts, its own addresses, other
 * bridges, tunnels. Two halves of the Internet, as VPNs route them, are a default route.
 */
const nearby = (routes: Route[]): string[] =>
  routes.flatMap(({ dst }) => ((parseCidr(dst)?.prefix ?? 0) >= 8 ? dst : []))

/**
 * `outward` sees new packets before an engine rewrites their destination, so a container does not reach a published
 * port either. What comes in was rewritten by the engine, for a published port, or answers.
 */
function rulesOf(
  { host, bridge, refused, resolvers, hostPorts }: Fence,
  inside: string,
  near: string[],
  routes: Route[],
): string {
  const comment = new Names(host).label('host', host)
  const from = `iifname "${bridge}"`
  const to = `oifname "${bridge}"`
  const known = 'ct state established,related accept'
  const devices = routes.flatMap(({ dst, dev }) => (dst === 'default' && dev ? [`"${dev}"`] : []))
  const asks = (way: string): string =>
    withSet(resolvers, (ones) => `${way} ip daddr ${ones} meta l4proto { tcp, udp } th dport 53 accept`)
  const routed = table(
    'ip',
    tableOf(host),
    comment,
    `
    chain outward {
      ip saddr != ${inside} drop
      ${known}
      ${asks('')}
      fib daddr type != unicast drop
      ip daddr ${set(withoutNested([...refused, ...near]))} drop
      ${withSet(hostPorts.map(String), (ports) => `udp dport ${ports} drop`)}
    }
    chain prerouting {
      type filter hook prerouting priority mangle;
      ${from} jump outward
    }
    chain input {
      type filter hook input priority mangle;
      ${from} ${known}
      ${asks(from)}
      ${from} drop
    }
    chain forward {
      type filter hook forward priority mangle;
      ${from} ${known}
      ${asks(from)}
      ${devices.length > 0 ? `${from} oifname != ${set(devices)} drop` : `${from} drop`}
      ${to} ${known}
      ${to} ct status dnat accept
      ${to} drop
    }`,
  )
  // No IPv6, which would bypass the rules above.
  const six = table(
    'ip6',
    tableOf(host),
    comment,
    `
    chain input {
      type filter hook input priority mangle;
      ${from} drop
    }
    chain forward {
      type filter hook forward priority mangle;
      ${from} drop
      ${to} drop
    }`,
  )
  return routed + six
}

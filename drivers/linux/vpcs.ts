import { withoutNested } from '../../lib/ipv4.ts'
import { batch, type Links, linksOf, lookAt, type Route, setRules } from './commands.ts'
import type { Host } from './host.ts'
import { isNamespace, removeNamespace } from './namespaces.ts'
import { removeHostRules, setHostRules, vpcRules } from './rules.ts'
import { applyTunnel, ownEnd, peerEnds } from './tunnel.ts'
import { linkUplink, placeUplink, type Uplink } from './uplinks.ts'
import type { SubnetSpec } from '../networks.ts'

export const subnetsOf = async ({ records }: Host, vpcId: string): Promise<SubnetSpec[]> =>
  (await records.subnets()).filter((subnet) => subnet.vpc_id === vpcId)

/**
 * Applies what the VPC's subnets share, in its namespace and on the host: forwarding, rules and the uplink. `gone`: a
 * subnet that is being removed and still has its record.
 */
export async function applyVpc(
  host: Host,
  vpcId: string,
  subnets: SubnetSpec[],
  inside: Links,
  gone?: string,
): Promise<{ uplink: Uplink | null; changed: boolean }> {
  const namespace = host.names.vpc(vpcId)
  return host.inTurn('host', async () => {
    const seen = await lookAt(host.namespace)
    const { links, routes } = seen
    const refused = refusedBy(host, links)
    const wanted = subnets.some(({ nat }) => nat)
    const uplink = wanted ? placeUplink(host, vpcId, links, routes) : null
    const rules = vpcRules(vpcId, subnets, { ...host, refused })
    const all = await subnetsHere(host, gone)
    await Promise.all([
      setRules(namespace, rules, vpcSettings),
      applyHostRules(host, { links, routes, refused, subnets: all, uplink: { vpcId, place: uplink } }),
    ])
    await applyTunnel(host, seen, all)
    const lines = linkUplink(host, vpcId, uplink, { links, inside })
    await batch('ip', host.namespace, lines)
    return { uplink, changed: lines.length > 0 }
  })
}

// No IPv6, which would bypass the rules. No reverse path filter: a member with NICs in two subnets may answer through
// either. Routing rules do not apply to bridged packets.
const vpcSettings = [
  'ipv4/ip_forward=1',
  'ipv4/conf/all/rp_filter=0',
  'ipv4/conf/default/rp_filter=0',
  'ipv6/conf/all/disable_ipv6=1',
  'ipv6/conf/default/disable_ipv6=1',
  'bridge/bridge-nf-call-iptables=0',
  'bridge/bridge-nf-call-arptables=0',
]

/** Includes the network between the hosts, which has the platform's services. */
function refusedBy({ refused, underlayAddress }: Host, links: Links): string[] {
  const underlay = [...links.values()]
    .flatMap(({ addr_info }) => addr_info)
    .filter(({ local }) => local === underlayAddress)
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`)
  return withoutNested([...refused, ...underlay])
}

/** The subnets on this host, without one that is being removed. */
const subnetsHere = async ({ records, left }: Host, gone?: string): Promise<SubnetSpec[]> =>
  (await records.subnets()).filter(({ id }) => id !== gone && !left.has(id))

interface HostState {
  links: Links
  routes: Route[]
  refused: string[]
  subnets: SubnetSpec[]
  uplink: { vpcId: string; place: Uplink | null }
}

async function applyHostRules(
  host: Host,
  { links, routes, refused, subnets, uplink }: HostState,
): Promise<void> {
  const { names, tunnel, vxlanPort } = host
  // The uplinks in the kernel, except this VPC's, which is about to be set.
  const others = [...links.values()]
    .filter(({ ifname }) => ifname.startsWith(names.prefix) && ifname !== names.uplink(uplink.vpcId))
    .flatMap(({ addr_info }) => addr_info.filter(({ family }) => family === 'inet'))
    .map(({ local, prefixlen }) => `${local}/${prefixlen}`)
  await setHostRules(
    host.namespace,
    {
      ...host,
      refused,
      vxlanPort: host.underlayAddress ? vxlanPort : null,
      tunnel: tunnel && { device: names.tunnel, end: ownEnd(host) ?? '', port: tunnel.port },
    },
    {
      uplinks: withoutNested(uplink.place ? [...others, uplink.place.cidr] : others),
      peers: subnets.map(({ vni, peers }) => ({ vni, ends: peerEnds(host, peers) })),
      outside: routes.flatMap(({ dst, dev }) => (dst === 'default' && dev ? [dev] : [])),
    },
  )
}

export async function removeVpc(host: Host, vpcId: string, lastSubnet: string): Promise<void> {
  const { names } = host
  const namespace = names.vpc(vpcId)
  if (await isNamespace(namespace)) {
    // Delete one by one: links still in a deleted namespace disappear only some time later.
    const own = [...(await linksOf(namespace)).keys()].filter((name) => name.startsWith(names.prefix))
    await batch(
      'ip',
      namespace,
      own.map((name) => ['link', 'delete', name]),
    )
  }
  await host.inTurn('host', async () => {
    const seen = await lookAt(host.namespace)
    const { links, routes } = seen
    const uplink = names.uplink(vpcId)
    if (links.has(uplink)) await batch('ip', host.namespace, [['link', 'delete', uplink]])
    // Of several VPCs that leave at once, the last one takes the rules away.
    host.left.add(lastSubnet)
    const others = await subnetsHere(host)
    const refused = refusedBy(host, links)
    await applyTunnel(host, seen, others)
    if (others.length > 0) {
      const uplinkGone = { vpcId, place: null }
      await applyHostRules(host, { links, routes, refused, subnets: others, uplink: uplinkGone })
    } else await removeHostRules(host.namespace, names)
  })
  await removeNamespace(namespace)
}

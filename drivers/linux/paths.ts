import { NetworkFailed } from '../errors.ts'
import { batch, linksOf, type Namespace, runIn, setRules } from './commands.ts'
import type { Host } from './host.ts'
import { isNamespace, makeNamespace, removeNamespace } from './namespaces.ts'
import { attach, detach } from './nics.ts'
import type { PathEnd, PathSpec } from '../networks.ts'

// A path is a namespace with a NIC in each of two VPCs, which are namespaces of their own. It translates both addresses of
// each packet. The two VPCs may have the same addresses, so it chooses the way by the NIC at which a packet arrives.

const table = 'keelson_path'
/** The routing tables to the target and to the instance. */
const ways = { far: 4711, near: 4712 }
const answersWithinSec = 3

/** See NetworkDriver.applyPath. */
export async function applyPath(host: Host, spec: PathSpec): Promise<void> {
  const { names, records } = host
  const namespace = names.path(spec.id)
  await records.savePath(spec)
  await makeNamespace(namespace)
  // First of all nothing passes: neither what others send to the NIC, nor from NIC to NIC.
  const vpc = await vpcOf(host, spec.near)
  if (vpc && (await isNamespace(vpc))) await setRules(vpc, guardRules(host, spec))
  await batch('ip', namespace, [['link', 'set', 'lo', 'alias', names.label('path', spec.id), 'up']])
  const attachEnd = (end: PathEnd) =>
    attach(host, { ...ofNic(end), default_route: false, into: { namespace } })
  const near = (await attachEnd(spec.near)).device
  const far = (await attachEnd(spec.far)).device
  const settings = [
    'ipv6/conf/all/disable_ipv6=1',
    ...['all', 'default', near, far].map((of) => `ipv4/conf/${of}/rp_filter=0`),
    'ipv4/ip_forward=1',
  ]
  await setRules(namespace, pathRules(spec, { near, far }), settings)
  await leadBothWays(namespace, spec, { near, far })
}

/** See NetworkDriver.removePath. */
export async function removePath(host: Host, id: string): Promise<void> {
  const spec = await host.records.path(id)
  if (spec) {
    const vpc = await vpcOf(host, spec.near)
    if (vpc && (await isNamespace(vpc))) await setRules(vpc, withoutGuard(host, spec))
    for (const end of [spec.near, spec.far]) await detach(host, end.id)
  }
  await removeNamespace(host.names.path(id))
  await host.records.removePath(id)
}

const ofNic = ({ id, subnet_id, mac_address, ip_address }: PathEnd) => ({
  id,
  subnet_id,
  mac_address,
  ip_address,
})

async function vpcOf({ names, records }: Host, { subnet_id }: PathEnd): Promise<string | null> {
  const subnet = await records.subnet(subnet_id)
  return subnet && names.vpc(subnet.vpc_id)
}

interface Devices {
  near: string
  far: string
}

/** Only the instance, to the target alone, with the path's address. */
const pathRules = ({ user, port, near: at, far: as, target }: PathSpec, { near, far }: Devices): string => `
table ip ${table}
delete table ip ${table}
table ip ${table} {
  chain prerouting {
    type nat hook prerouting priority dstnat;
    iifname "${near}" ip saddr ${user.ip_address} ip daddr ${at.ip_address} tcp dport ${port} dnat to ${target.ip_address}:${target.port}
  }
  chain forward {
    type filter hook forward priority filter; policy drop;
    iifname "${near}" oifname "${far}" ip saddr ${user.ip_address} ip daddr ${target.ip_address} tcp dport ${target.port} accept
    iifname "${far}" oifname "${near}" ct state established,related accept
  }
  chain input {
    type filter hook input priority filter; policy drop;
    ct state established,related accept
  }
  chain postrouting {
    type nat hook postrouting priority srcnat;
    ip saddr ${user.ip_address} oifname "${far}" snat to ${as.ip_address}
  }
}
`

const guardOf = ({ names }: Host, { near }: PathSpec): string => `${table}_${names.nic(near.id)}`

const withoutGuard = (host: Host, spec: PathSpec): string =>
  `table bridge ${guardOf(host, spec)}\ndelete table bridge ${guardOf(host, spec)}\n`

/**
 * On the bridge of the instance's subnet: no frame reaches the path but those that come from the instance's NIC, whatever
 * addresses another member writes into them, and none goes elsewhere from it.
 */
function guardRules(host: Host, spec: PathSpec): string {
  const { names } = host
  const [path, user] = [names.nic(spec.near.id), names.nic(spec.user.nic_id)]
  return `${withoutGuard(host, spec)}table bridge ${guardOf(host, spec)} {
  chain forward {
    type filter hook forward priority 0;
    oifname "${path}" iifname != "${user}" drop
    iifname "${path}" oifname != "${user}" drop
  }
  chain input {
    type filter hook input priority 0;
    iifname "${path}" drop
  }
  chain output {
    type filter hook output priority 0;
    oifname "${path}" drop
  }
}
`
}

/** What comes from the instance goes to the target, and the other way round. Its own packets go to the target. */
async function leadBothWays(
  namespace: Namespace,
  { user, target }: PathSpec,
  { near, far }: Devices,
): Promise<void> {
  const known = await runIn(namespace, 'ip', ['rule', 'show'])
  const rules = [
    { device: near, way: ways.far },
    { device: far, way: ways.near },
    { device: 'lo', way: ways.far },
  ].filter(({ device, way }) => !known.includes(`iif ${device} lookup ${way}`))
  await batch('ip', namespace, [
    ['route', 'replace', target.ip_address, 'dev', far, 'table', ways.far],
    ['route', 'replace', user.ip_address, 'dev', near, 'table', ways.near],
    ...rules.map(({ device, way }) => ['rule', 'add', 'iif', device, 'lookup', way]),
  ])
}

/** See NetworkDriver.pathReaches. */
export async function pathReaches({ names, records }: Host, id: string): Promise<boolean> {
  const spec = await records.path(id)
  const namespace = names.path(id)
  if (!spec || !(await isNamespace(namespace)) || (await linksOf(namespace)).size < 3) return false
  const { ip_address, port } = spec.target
  const connect = 'exec 3<>"/dev/tcp/$0/$1"'
  try {
    await runIn(namespace, 'timeout', [
      String(answersWithinSec),
      'bash',
      '-c',
      connect,
      ip_address,
      String(port),
    ])
    return true
  } catch (error) {
    if (error instanceof NetworkFailed) return false
    throw error
  }
}

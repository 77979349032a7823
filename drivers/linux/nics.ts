import { stat } from 'node:fs/promises'
import { EngineRefused, SubnetNotOnHost } from '../errors.ts'
import { contains, parseCidr, toAddress } from '../../lib/ipv4.ts'
import {
  addressLines,
  batch,
  type Lines,
  type Link,
  type Links,
  linksOf,
  lookAt,
  namespaceFile,
  type Route,
} from './commands.ts'
import type { Host } from './host.ts'
import { isNamespace, vpcNamespaces } from './namespaces.ts'
import { answerByEngine } from './published.ts'
import type { AttachedNic, NicSpec, SubnetSpec } from '../networks.ts'

/** See NetworkDriver.attachNic. */
export async function attach(host: Host, spec: NicSpec): Promise<AttachedNic> {
  const { names, records } = host
  const subnet = await records.subnet(spec.subnet_id)
  if (!subnet) throw new SubnetNotOnHost(spec.subnet_id)
  const cidr = parseCidr(subnet.cidr)
  if (!cidr || !contains(cidr, spec.ip_address))
    throw new EngineRefused(`The address ${spec.ip_address} is not in the subnet ${subnet.cidr}`)
  const namespace = names.vpc(subnet.vpc_id)
  const name = names.nic(spec.id)

  const look = async () => ((await isNamespace(namespace)) ? linksOf(namespace) : (new Map() as Links))
  let links = await look()
  const bridge = names.bridge(subnet.id)
  if (!links.has(bridge)) throw new SubnetNotOnHost(subnet.id)
  const member = memberOf(spec)
  if (member !== null) await mustBeApart(host, member)

  const before = await records.nic(spec.id)
  const wasHere = before !== null && (await isSame(before, spec))
  if (before && before.subnet_id !== spec.subnet_id) {
    await detach(host, spec.id)
    links = await look()
  }
  await records.saveNic(spec)
  if (member === null) {
    await batch('ip', namespace, tapLines(host, spec, links, bridge))
    return { namespace, device: name, restored: false }
  }
  const { device, isNew } = await attachToMember(host, spec, member, {
    subnet,
    links,
    bridge,
    prefix: cidr.prefix,
  })
  return { namespace, device, restored: isNew && wasHere }
}

/** See NetworkDriver.detachNic. Deleting one end also deletes the other. */
export async function detach(host: Host, id: string): Promise<void> {
  const namespace = await namespaceOfNic(host, id)
  if (namespace) await batch('ip', namespace, [['link', 'delete', host.names.nic(id)]])
  await host.records.removeNic(id)
}

/** The namespace of a NIC's bridge end; null if there is none. */
export async function namespaceOfNic({ names, records }: Host, id: string): Promise<string | null> {
  const nic = await records.nic(id)
  const subnet = nic && (await records.subnet(nic.subnet_id))
  const likely = subnet ? [names.vpc(subnet.vpc_id)] : await vpcNamespaces(names)
  for (const namespace of likely) {
    if ((await isNamespace(namespace)) && (await linksOf(namespace)).has(names.nic(id))) return namespace
  }
  return null
}

function tapLines(host: Host, spec: NicSpec, links: Links, bridge: string): Lines {
  const name = host.names.nic(spec.id)
  const there = links.get(name)
  const isTap = there?.linkinfo?.info_kind === 'tun'
  const lines: Lines = there && !isTap ? [['link', 'delete', name]] : []
  if (!isTap) lines.push(['tuntap', 'add', 'dev', name, 'mode', 'tap'])
  return [...lines, ...portLines(host, spec, isTap ? there : undefined, bridge)]
}

/** Lines for the bridge's end of a NIC. */
function portLines({ names, mtu }: Host, { id }: NicSpec, link: Link | undefined, bridge: string): Lines {
  const alias = names.label('nic', id)
  const set =
    link?.ifalias === alias && link.master === bridge && link.mtu === mtu && link.flags.includes('UP')
  return set ? [] : [['link', 'set', names.nic(id), 'alias', alias, 'mtu', mtu, 'master', bridge, 'up']]
}

interface Place {
  subnet: SubnetSpec
  links: Links
  bridge: string
  prefix: number
}

/** A member's namespace: its name in /run/netns, or that of a process. */
type Member = string | { pid: number }

const memberOf = ({ into }: NicSpec): Member | null =>
  into === 'tap' ? null : 'namespace' in into ? into.namespace : into

async function attachToMember(
  host: Host,
  spec: NicSpec,
  member: Member,
  place: Place,
): Promise<{ device: string; isNew: boolean }> {
  const { names, mtu } = host
  const namespace = names.vpc(place.subnet.vpc_id)
  const { links: theirs, routes } = await lookAt(member)
  const port = place.links.get(names.nic(spec.id))
  // Match the MAC address too: each end names the other by index, which another pair may share.
  const there = port && [...theirs.values()].find((link) => isOtherEnd(link, port, spec))
  const device = there?.ifname ?? freeName(theirs)
  // A link that was just moved in has no label yet.
  const isOurs = ({ ifname, ifalias }: Link) => ifname === device || names.readLabel(ifalias) !== null
  await answerByEngine(member, { links: theirs, routes }, isOurs)

  const lines: Lines = []
  if (!there) {
    if (port) lines.push(['link', 'delete', port.ifname])
    const end = [
      'peer',
      'name',
      device,
      'address',
      spec.mac_address,
      'mtu',
      mtu,
      'netns',
      typeof member === 'string' ? member : member.pid,
    ]
    lines.push(['link', 'add', names.nic(spec.id), 'mtu', mtu, 'type', 'veth', ...end])
  }
  await batch('ip', namespace, [...lines, ...portLines(host, spec, there ? port : undefined, place.bridge)])
  await batch('ip', member, memberLines(host, spec, { there, device, routes, ...place }))
  return { device, isNew: !there }
}

/** Lines for the member's namespace. */
function memberLines(
  { names, mtu }: Host,
  spec: NicSpec,
  member: Place & { there: Link | undefined; device: string; routes: Route[] },
): Lines {
  const { there, device, routes, subnet, prefix } = member
  const alias = names.label('nic', spec.id)
  const lines = addressLines(there, device, `${spec.ip_address}/${prefix}`)
  if (there?.ifalias !== alias || there.mtu !== mtu || !there.flags.includes('UP'))
    lines.push(['link', 'set', device, 'alias', alias, 'mtu', mtu, 'up'])
  const gateway = subnet.gateway_ip
  const present = routes.find(({ dst, dev }) => dst === 'default' && dev === device)
  if (spec.default_route && present?.gateway !== gateway)
    lines.push(['route', 'replace', 'default', 'via', gateway, 'dev', device])
  if (!spec.default_route && present) lines.push(['route', 'delete', 'default', 'dev', device])
  return lines.length > 0 ? [...lines, announcement(spec, subnet, device)] : lines
}

/**
 * Makes the kernel broadcast an ARP request, up to three times, for some other address. Other hosts learn from it
 * where the NIC is now; otherwise they would send to its old host for five minutes. Not for the gateway's address:
 * that request does not leave the host.
 */
function announcement(spec: NicSpec, { cidr, gateway_ip }: SubnetSpec, device: string): Lines[number] {
  const { last = 0 } = parseCidr(cidr) ?? {}
  const others = [1, 2, 3].map((back) => toAddress(last - back))
  const asked = others.find((address) => address !== spec.ip_address && address !== gateway_ip) ?? gateway_ip
  return ['neighbour', 'replace', asked, 'dev', device, 'use']
}

const isOtherEnd = (link: Link, port: Link, spec: NicSpec): boolean =>
  link.link_index === port.ifindex &&
  port.link_index === link.ifindex &&
  link.address === spec.mac_address.toLowerCase()

function freeName(links: Links): string {
  for (let index = 0; ; index++) if (!links.has(`eth${index}`)) return `eth${index}`
}

/** Whether both are the same NIC in the same namespace, which another process of the instance may name. */
async function isSame(one: NicSpec, other: NicSpec): Promise<boolean> {
  const [of, its] = [memberOf(one), memberOf(other)]
  const [rest, itsRest] = [one, other].map((spec) => JSON.stringify({ ...spec, into: null }))
  if (rest !== itsRest || of === null || its === null) return false
  const known = await inode(namespaceFile(of))
  return known !== null && known === (await inode(namespaceFile(its)))
}

/** Throws EngineRefused if the member shares the host's namespace, which must not be changed. */
async function mustBeApart({ namespace }: Host, member: Member): Promise<void> {
  const [its, hosts, ours] = await Promise.all([
    inode(namespaceFile(member)),
    inode(namespace === null ? '/proc/self/ns/net' : namespaceFile(namespace)),
    inode('/proc/self/ns/net'),
  ])
  if (its === null) throw new EngineRefused('The NIC’s instance is not running')
  if (its === hosts || its === ours)
    throw new EngineRefused('The instance has no network namespace of its own')
}

const inode = (file: string): Promise<number | null> =>
  stat(file).then(
    ({ ino }) => ino,
    () => null,
  )

import { isIPv4 } from 'node:net'
import { EngineRefused } from '../errors.ts'
import { contains, parseCidr } from '../../lib/ipv4.ts'
import { tunnelKeyForm } from './tunnel-keys.ts'
import type { NicSpec, PathSpec, SubnetHost, SubnetSpec } from '../networks.ts'

// Validates everything that goes into commands, rules and dnsmasq's files, even if a caller did: a line break in a
// name would inject a setting on the host.

// A rule's comment holds the host's id and the thing's id, 128 characters in all.
const id = /^[\w.-]{1,48}$/
const mac = /^([\da-f]{2}:){5}[\da-f]{2}$/i
const label = '[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?'
const domain = new RegExp(`^${label}(\\.${label})*$`, 'i')

/** @throws EngineRefused with the invalid value. */
export function checkSubnet(spec: SubnetSpec): void {
  for (const text of [spec.id, spec.vpc_id, spec.tenant_id]) must(id.test(text), 'id', text)
  const cidr = parseCidr(spec.cidr)
  must(cidr !== null && cidr.prefix <= 30, 'cidr', spec.cidr)
  must(contains(cidr, spec.gateway_ip), 'gateway_ip', spec.gateway_ip)
  must(Number.isInteger(spec.vni) && spec.vni > 0 && spec.vni < 2 ** 24, 'vni', spec.vni)
  for (const address of [...spec.peers.map((peer) => peer.address), ...(spec.dhcp?.dns_servers ?? [])])
    must(isIPv4(address), 'address', address)
  for (const { tunnel_key: key } of spec.peers)
    must(key === null || tunnelKeyForm.test(key), 'tunnel_key', key)
  const inside = (host: SubnetHost): void => {
    must(mac.test(host.mac_address), 'mac_address', host.mac_address)
    must(contains(cidr, host.ip_address), 'ip_address', host.ip_address)
  }
  for (const host of [...spec.hosts, ...(spec.dhcp?.static_leases ?? [])]) inside(host)
  for (const { name, ip_address } of spec.names) {
    must(domain.test(name) && name.length <= 253, 'name', name)
    must(isIPv4(ip_address), 'ip_address', ip_address) // may be in another subnet of the VPC
  }
  if (!spec.dhcp) return
  must(domain.test(spec.dhcp.domain_name), 'domain_name', spec.dhcp.domain_name)
  // dnsmasq's minimum is two minutes.
  const { lease_time_sec: lease, range } = spec.dhcp
  must(Number.isInteger(lease) && lease >= 120 && lease < 2 ** 31, 'lease_time_sec', lease)
  if (range) must(contains(cidr, range.start) && contains(cidr, range.end), 'range', range)
}

/** @throws EngineRefused with the invalid value: an invalid range would leave addresses unblocked. */
export function checkSettings(settings: { host: string; refused: string[]; uplinkPool: string }): void {
  must(id.test(settings.host), 'host', settings.host)
  for (const range of [...settings.refused, settings.uplinkPool])
    must(parseCidr(range) !== null, 'range', range)
}

/** @throws EngineRefused with the invalid value. */
export function checkNic(spec: NicSpec): void {
  for (const text of [spec.id, spec.subnet_id]) must(id.test(text), 'id', text)
  must(mac.test(spec.mac_address), 'mac_address', spec.mac_address)
  must(isIPv4(spec.ip_address), 'ip_address', spec.ip_address)
  must(isPlace(spec.into), 'into', spec.into)
}

/** @throws EngineRefused with the invalid value. */
export function checkPath({ id: its, user, port, near, far, target }: PathSpec): void {
  for (const text of [its, user.nic_id, near.id, near.subnet_id, far.id, far.subnet_id])
    must(id.test(text), 'id', text)
  for (const { mac_address } of [near, far]) must(mac.test(mac_address), 'mac_address', mac_address)
  for (const { ip_address } of [user, near, far, target]) must(isIPv4(ip_address), 'ip_address', ip_address)
  for (const one of [port, target.port]) must(Number.isInteger(one) && one > 0 && one < 65_536, 'port', one)
}

/** A name in /run/netns may not lead out of that folder. */
function isPlace(into: NicSpec['into']): boolean {
  if (into === 'tap') return true
  if ('namespace' in into) return id.test(into.namespace) && !into.namespace.startsWith('.')
  return Number.isInteger(into.pid) && into.pid > 0
}

function must(holds: boolean, what: string, value: unknown): asserts holds {
  if (!holds) throw new EngineRefused(`The network’s ${what} is not valid: ${JSON.stringify(value)}`)
}

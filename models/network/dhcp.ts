import { type Cidr, contains, parseCidr, toNumber } from '../../lib/ipv4.ts'
import { type InputError, InvalidInput } from '../../lib/problem.ts'

/** The DHCP settings of a subnet. */
export interface DhcpConfig {
  /** The range to lease to MAC addresses without a static lease; null: no such leases. */
  range_start: string | null
  range_end: string | null
  lease_time_sec: number
  /** The resolvers for names that no member has; empty: the platform's resolvers. */
  dns_servers: string[]
  domain_name: string
  static_leases: { mac_address: string; ip_address: string }[]
}

export const defaultDomain = 'internal'

/** Whether the address is in the DHCP range. */
export function isLent({ range_start, range_end }: DhcpConfig, address: number): boolean {
  if (range_start === null || range_end === null) return false
  return address >= toNumber(range_start) && address <= toNumber(range_end)
}

/** Whether an instance may have the address: in the subnet, but not its network, broadcast or gateway address. */
export const isForMembers = ({ first, last }: Cidr, gateway_ip: string, address: number): boolean =>
  address > first && address < last && address !== toNumber(gateway_ip)

/** Throws InvalidInput if the config does not fit the subnet. */
export function checkDhcpConfig(subnet: { cidr: string; gateway_ip: string }, config: DhcpConfig): void {
  const cidr = parseCidr(subnet.cidr)
  const errors: InputError[] = []
  const say = (pointer: string, message: string) => errors.push({ pointer, message })
  const inside = (pointer: string, address: string) => {
    const fits = cidr && contains(cidr, address) && isForMembers(cidr, subnet.gateway_ip, toNumber(address))
    if (!fits) say(pointer, `must be an address of ${subnet.cidr}, not its first, last or gateway’s`)
  }
  const { range_start: start, range_end: end, static_leases } = config
  if ((start === null) !== (end === null)) say('/range_end', 'a range has a start and an end')
  if (start !== null && end !== null) {
    inside('/range_start', start)
    inside('/range_end', end)
    if (toNumber(start) > toNumber(end)) say('/range_end', 'must not lie before range_start')
    if (isLent(config, toNumber(subnet.gateway_ip)))
      say('/range_start', 'the range holds the gateway’s address')
  }
  static_leases.forEach(({ ip_address }, i) => inside(`/static_leases/${i}/ip_address`, ip_address))
  for (const field of ['mac_address', 'ip_address'] as const) {
    if (new Set(static_leases.map((lease) => lease[field])).size < static_leases.length)
      say('/static_leases', `the same ${field} is listed twice`)
  }
  if (errors.length) throw new InvalidInput(422, errors)
}

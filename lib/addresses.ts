import { isIP } from 'node:net'
import ipaddr from 'ipaddr.js'

/**
 * The address to listen on for an announced address. A loopback address is used as it is; otherwise all interfaces,
 * because an announced address need not belong to an interface (NAT).
 */
export const listenAddress = (address: string): string => (isLoopback(address) ? address : '0.0.0.0')

export const isLoopback = (address: string): boolean =>
  (isIP(address) === 4 && address.startsWith('127.')) || address === '::1'

/** The network of a caller: of an IPv6 address, the first 64 bits, which belong to one caller. */
export function networkOf(address: string): string {
  if (isIP(address) !== 6) return address
  const parsed = ipaddr.parse(address) as ipaddr.IPv6
  if (parsed.isIPv4MappedAddress()) return parsed.toIPv4Address().toString()
  return `${parsed.parts
    .slice(0, 4)
    .map((part) => part.toString(16))
    .join(':')}::/64`
}

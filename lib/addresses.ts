import { isIP } from 'node:net'

/**
 * The address to listen on for an announced address. A loopback address is used as it is; otherwise all interfaces,
 * because an announced address need not belong to an interface (NAT).
 */
export const listenAddress = (address: string): string => (isLoopback(address) ? address : '0.0.0.0')

export const isLoopback = (address: string): boolean =>
  (isIP(address) === 4 && address.startsWith('127.')) || address === '::1'

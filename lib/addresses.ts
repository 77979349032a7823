import { isIP } from 'node:net'

/**
 * Where to listen for what is announced at `address`: there and nowhere else while everything is on one
 * machine; on all interfaces otherwise, since an announced address need not be an interface's own (NAT).
 */
export const listenAddress = (address: string): string => (isLoopback(address) ? address : '0.0.0.0')

const isLoopback = (address: string): boolean =>
  (isIP(address) === 4 && address.startsWith('127.')) || address === '::1'

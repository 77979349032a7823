import { isIPv4 } from 'node:net'

export interface Cidr {
  /** The lowest and the highest address as numbers, both included. */
  first: number
  last: number
  prefix: number
}

export const toNumber = (address: string): number =>
  address.split('.').reduce((sum, byte) => sum * 256 + Number(byte), 0)

export const toAddress = (number: number): string =>
  [24, 16, 8, 0].map((shift) => (number >>> shift) & 255).join('.')

/** Parses `10.0.0.0/24` or a single address; null if it is neither. Bits right of the prefix are ignored. */
export function parseCidr(text: string): Cidr | null {
  const [address = '', length = '32', ...rest] = text.split('/')
  if (!isIPv4(address) || !/^\d{1,2}$/.test(length) || Number(length) > 32 || rest.length > 0) return null
  const prefix = Number(length)
  const size = 2 ** (32 - prefix)
  const first = Math.floor(toNumber(address) / size) * size
  return { first, last: first + size - 1, prefix }
}

export const overlap = (one: Cidr, other: Cidr): boolean => one.first <= other.last && other.first <= one.last

export const contains = (cidr: Cidr, address: string): boolean =>
  isIPv4(address) && toNumber(address) >= cidr.first && toNumber(address) <= cidr.last

/** Drops ranges that lie in another range: nftables accepts no overlaps. */
export function withoutNested(ranges: string[]): string[] {
  const wide = ranges.flatMap((text) => parseCidr(text) ?? []).toSorted((a, b) => a.prefix - b.prefix)
  const kept: Cidr[] = []
  for (const range of wide) if (!kept.some((other) => overlap(other, range))) kept.push(range)
  return kept.map(({ first, prefix }) => `${toAddress(first)}/${prefix}`)
}

const privateRanges = ['10.0.0.0/8', '172.16.0.0/12', '192.168.0.0/16'].flatMap(
  (text) => parseCidr(text) ?? [],
)

/** Whether this is a private network (RFC 1918), written by its first address, with a prefix within these bounds. */
export function isPrivateNetwork(text: string, shortest: number, longest: number): boolean {
  const cidr = parseCidr(text)
  if (!cidr || text !== `${toAddress(cidr.first)}/${cidr.prefix}`) return false
  if (cidr.prefix < shortest || cidr.prefix > longest) return false
  return privateRanges.some((range) => holds(range, cidr))
}

/** Whether the inner range lies in the outer one. */
export const holds = (outer: Cidr, inner: Cidr): boolean =>
  inner.first >= outer.first && inner.last <= outer.last

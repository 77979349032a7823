import { z } from 'zod'
import { isPrivateNetwork } from '../../lib/ipv4.ts'
import { Id } from '../fields.ts'

/** A private IPv4 CIDR with a prefix length in this range. */
export const PrivateCidr = (shortest: number, longest: number) =>
  z
    .string()
    .max(18)
    .refine(
      (text) => isPrivateNetwork(text, shortest, longest),
      `must be a network of private IPv4 addresses, /${shortest} to /${longest}, such as 10.0.0.0/24`,
    )
    .describe(`IPv4, within 10.0.0.0/8, 172.16.0.0/12 or 192.168.0.0/16; /${shortest} to /${longest}`)

export const IpAddress = z.ipv4()
export const MacAddress = z
  .string()
  .regex(
    /^[0-9a-f][02468ace](:[0-9a-f]{2}){5}$/i,
    'must be a MAC address of one interface, such as 52:54:00:12:34:56',
  )
  .toLowerCase()

/** A NIC in a request. */
export const AskedNic = z.strictObject({
  subnet_id: Id,
  ip_address: IpAddress.nullable().default(null).describe('Default: the next free address'),
})

export const NicView = z.strictObject({
  id: Id,
  subnet_id: Id,
  mac_address: z.string(),
  ip_address: z.string(),
})

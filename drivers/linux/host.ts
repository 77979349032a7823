import type { NamedQueues } from '../../lib/queue.ts'
import type { Names } from './names.ts'
import type { Records } from './records.ts'
import type { TunnelKeys } from './tunnel-keys.ts'

export interface TunnelSettings {
  keys: TunnelKeys
  /** UDP, the same on all hosts. */
  port: number
  /** wireguard-go, for a kernel without WireGuard. */
  program: string
}

/** `applied`: the peers in the device, as words of `wg set`, by key; null if they are not known. */
export type Tunnel = TunnelSettings & { applied: Map<string, string> | null }

/** Host data shared by the parts of the driver. */
export interface Host {
  names: Names
  records: Records
  namespace: string | null
  underlayAddress: string | null
  /** Null on a host without an underlay, or whose operator vouches for it. */
  tunnel: Tunnel | null
  resolvers: string[]
  refused: string[]
  uplinkPool: string
  vxlanPort: number
  mtu: number
  /** Queues by VPC, by NIC, by member, and for the whole host. */
  inTurn: NamedQueues
  /** Subnets whose VPC has left the host, but for their record. */
  left: Set<string>
}

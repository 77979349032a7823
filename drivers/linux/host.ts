import type { NamedQueues } from '../../lib/queue.ts'
import type { Names } from './names.ts'
import type { Records } from './records.ts'

/** Host data shared by the parts of the driver. */
export interface Host {
  names: Names
  records: Records
  namespace: string | null
  underlayAddress: string | null
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

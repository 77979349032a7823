import type { NamedQueues } from '../../lib/queue.ts'
import type { Names } from './names.ts'
import type { Records } from './records.ts'

/** A host, as all parts of the driver know it. */
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
  /** By VPC, by NIC, by process, and for the whole host. */
  inTurn: NamedQueues
}

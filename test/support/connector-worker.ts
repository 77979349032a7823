import { useProviders } from '../../models/connectors/providers.ts'
import { secretOf } from '../../models/connectors/secrets.ts'
import { connectDatabase, disconnectDatabase } from '../../models/database.ts'
import { useOutbound } from '../../models/outbound.ts'
import { makeOutbound } from '../../lib/outbound.ts'

// A process of the platform in which many callers ask for one connector's credential at once. Arguments: the settings,
// tenant, connector and number of callers, as JSON. Prints the versions that they got, once it is asked to begin.

const { settings, allowed, tenant_id, id, callers } = JSON.parse(process.argv[2] ?? '{}') as {
  settings: Parameters<typeof connectDatabase>[0] & Parameters<typeof useProviders>[0]
  allowed: string[]
  tenant_id: string
  id: string
  callers: number
}
await connectDatabase(settings)
useOutbound(makeOutbound({ allowed }))
useProviders(settings)
console.log('ready')
await new Promise((resolve) => process.stdin.once('data', resolve))
const got = await Promise.all(Array.from({ length: callers }, () => secretOf(tenant_id, id)))
console.log(JSON.stringify(got.map(({ version }) => version)))
await disconnectDatabase()
process.exit()

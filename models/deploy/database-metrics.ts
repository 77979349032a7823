import { createHash } from 'node:crypto'
import type { DatabaseMetricsOnHost } from '../../lib/deploy-protocol.ts'
import type { Observer } from '../compute/observer.ts'
import { databasesOn } from './databases-on-hosts.ts'
import { engineOf } from './engines/index.ts'

// The databases on a host whose engines are to be asked what they tell of themselves, with the scripts that ask them.

export async function databaseMetricsOn(hostId: string): Promise<DatabaseMetricsOnHost> {
  const databases = (await databasesOn(hostId)).map(({ database: { _id, type }, machine_id }) => {
    const { script, every_sec } = engineOf(type).metrics
    return { id: _id, machine_id, every_sec, script }
  })
  const version = createHash('sha256').update(JSON.stringify(databases)).digest('hex')
  return { version, databases }
}

export const databaseMetricsObserver: Observer = {
  wanted: async (hostId) => (await databaseMetricsOn(hostId)).version,
}

import { Archive } from '../../models/deploy/archives.ts'
import type { databasesOf } from './clients/databases.ts'
import { inPostgresql, type insideOf, rows } from './database-insides.ts'
import { eventually } from './eventually.ts'
import type { TestTenant } from './tenants.ts'

/** What tests of point-in-time recovery do with databases of PostgreSQL. */
export function momentsOf(
  tenant: TestTenant,
  databases: ReturnType<typeof databasesOf>,
  inside: ReturnType<typeof insideOf>,
) {
  const moments = {
    /** A database that is archived, with its first base. */
    async make(over: object = {}): Promise<string> {
      const of = { type: 'postgresql', memory_mib: 96, point_in_time: { enabled: true } }
      const { id } = await databases.make({ ...of, ...over })
      await moments.archiving(id)
      return id
    },
    archiving: (id: string) =>
      eventually(async () => {
        const { point_in_time } = await databases.get(id)
        return point_in_time?.status === 'archiving' && point_in_time
      }),
    sql: (id: string, query: string): Promise<string> => inside.runIn(id, inPostgresql(query)),
    /** Adds rows to those that `inside.write` has written. */
    writeMore: (id: string): Promise<string> =>
      moments.sql(id, `INSERT INTO rows SELECT generate_series(${rows + 1}, ${rows + 50})`),
    /** The moment that it is now for the engine: all that has been written was committed before. */
    async now(id: string): Promise<string> {
      const epoch = await moments.sql(id, 'SELECT extract(epoch FROM clock_timestamp())')
      return new Date(Math.ceil(Number(epoch) * 1000)).toISOString()
    },
    /** Waits until the database can be recovered to a moment. */
    reaches: (id: string, moment: string) =>
      eventually(async () => ((await databases.get(id)).point_in_time?.latest ?? '') >= moment),
    archives: (database_id: string) =>
      Archive.find({ database_id, tenant_id: tenant.id }).sort({ created_at: 1 }).lean(),
  }
  return moments
}

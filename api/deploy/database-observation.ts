import { Readable } from 'node:stream'
import { z } from 'zod'
import { LogLine } from '../../lib/host-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { Database, type DatabaseDocument, databaseOf } from '../../models/deploy/databases.ts'
import { placeOfDatabase } from '../../models/deploy/replicas.ts'
import { activityFeed } from '../activity.ts'
import { askService } from '../compute/observation/data-plane.ts'
import { askLogs, logsQuery, sendLogs } from '../compute/observation/logs.ts'
import { MetricsQuery } from '../compute/observation/metrics.ts'
import { replicaLines, type Replicas } from '../compute/observation/replica-lines.ts'
import { textOf } from '../compute/observation/timed-lines.ts'
import { Id } from '../fields.ts'
import { operation, stream } from '../operation.ts'
import { databaseMetricsOf, DatabaseMetricsView } from './database-metrics.ts'
import { path } from './deployments.ts'

// Output, metrics and activity of databases.

const params = z.strictObject({ id: Id, db: Id })

export const databaseObservation = [
  operation({
    method: 'GET',
    path: `${path}/databases/{db}/logs`,
    permission: 'deploy_servers:read',
    summary: 'Get the output of a database’s engine',
    params,
    query: z.strictObject(logsQuery),
    responses: {
      200: stream(
        'application/x-ndjson',
        LogLine.meta({ id: 'DatabaseLogLine' }).describe(
          'A line with the field `missing` says that its worker does not answer',
        ),
      ),
    },
    handle: async ({ caller, params: { id, db }, query, http: { response } }) => {
      const database = await databaseOf(caller, id, db)
      const gone = new AbortController()
      response.once('close', () => gone.abort())
      const engine = engineAsReplica(database, gone.signal)
      const lines = await replicaLines(engine, await engine.names(), query, gone.signal)
      const text = Readable.from(textOf(lines), { objectMode: false })
      await sendLogs(text, response, { follow: query.follow, timestamps: true })
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/databases/{db}/metrics`,
    permission: 'deploy_servers:read',
    summary:
      'Get the resource usage of a database, and the connections, size, queries and cache hits that its engine reports',
    params,
    query: MetricsQuery,
    responses: { 200: DatabaseMetricsView },
    handle: async ({ caller, params: { id, db }, query }) => {
      const { _id: database_id, tenant_id } = await databaseOf(caller, id, db)
      return databaseMetricsOf({ tenant_id, database_id }, query)
    },
  }),

  activityFeed({
    path: `${path}/databases/{db}/activity`,
    permission: 'deploy_servers:read',
    summary:
      'List what happened to a database: its creation, failed operations, ends and failed starts of its engine',
    params,
    scope: async (caller, { id, db }) => ({ resource_id: (await databaseOf(caller, id, db))._id }),
  }),
]

/** Its engine, as something with one replica. */
function engineAsReplica({ _id, tenant_id }: DatabaseDocument, signal: AbortSignal): Replicas {
  const now = () => Database.findOne({ _id, tenant_id }).lean()
  return {
    isThere: async () => Boolean(await now()),
    names: async () => ((await now())?.runs ? [_id] : []),
    ask: async (_, query) => {
      const database = await now()
      const place = database && (await placeOfDatabase(database))
      if (!place) throw new NotFound('engine')
      return askService(place.host_id, place, askLogs(query), signal)
    },
    lineOf: (_, line) => ({ time: line.time, stream: line.stream, text: JSON.stringify(line) }),
    remarkOn: (_, missing) => ({ time: '', text: JSON.stringify({ missing }) }),
  }
}

import { Readable } from 'node:stream'
import { z } from 'zod'
import { LogLine } from '../../lib/host-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { Application, type ApplicationDocument, applicationOf } from '../../models/deploy/applications.ts'
import { replicasOfApplication } from '../../models/deploy/replicas.ts'
import { askService } from '../compute/observation/data-plane.ts'
import { askLogs, logsQuery, sendLogs } from '../compute/observation/logs.ts'
import { replicaLines, type Replicas } from '../compute/observation/replica-lines.ts'
import { textOf } from '../compute/observation/timed-lines.ts'
import { Id } from '../fields.ts'
import { operation, stream } from '../operation.ts'
import { path } from './deployments.ts'

// The output of an application's replicas.

const ApplicationLine = z
  .object({
    ...LogLine.shape,
    deployment_id: Id,
    worker: z.string(),
    replica: Id,
  })
  .meta({ id: 'ApplicationLogLine' })

export const applicationLogs = [
  operation({
    method: 'GET',
    path: `${path}/applications/{app}/logs`,
    permission: 'deploy_servers:read',
    summary: 'Get the output of an application: the lines of all replicas in order of time',
    params: z.strictObject({ id: Id, app: Id }),
    query: z.strictObject(logsQuery),
    responses: {
      200: stream(
        'application/x-ndjson',
        ApplicationLine.describe('A line with the field `missing` names a worker that does not answer'),
      ),
    },
    handle: async ({ caller, params, query, http: { response } }) => {
      const application = await applicationOf(caller, params.id, params.app)
      const gone = new AbortController()
      response.once('close', () => gone.abort())
      const replicas = replicasOf(application, gone.signal)
      const lines = await replicaLines(replicas, await replicas.names(), query, gone.signal)
      const text = Readable.from(textOf(lines), { objectMode: false })
      await sendLogs(text, response, { follow: query.follow, timestamps: true })
    },
  }),
]

/** The replicas of an application by the ids of their services. */
function replicasOf({ _id, tenant_id }: ApplicationDocument, signal: AbortSignal): Replicas {
  type Replica = Awaited<ReturnType<typeof replicasOfApplication>>[number]
  const known = new Map<string, Replica>()
  const now = () => Application.findOne({ _id, tenant_id }).lean()
  const tell = (id: string) => {
    const { deployment_id, node: worker } = known.get(id) ?? {}
    return { deployment_id, worker, replica: id }
  }
  return {
    isThere: async () => Boolean(await now()),
    names: async () => {
      const application = await now()
      const found = application ? await replicasOfApplication(application) : []
      for (const one of found) known.set(one.service_id, one)
      return found.map(({ service_id }) => service_id)
    },
    ask: async (id, query) => {
      const replica = known.get(id)
      if (!replica) throw new NotFound('replica')
      return askService(replica.host_id, replica, askLogs(query), signal)
    },
    lineOf: (id, line) => ({
      time: line.time,
      stream: line.stream,
      text: JSON.stringify({ ...line, ...tell(id) }),
    }),
    remarkOn: (id, missing) => ({ time: '', text: JSON.stringify({ ...tell(id), missing }) }),
  }
}

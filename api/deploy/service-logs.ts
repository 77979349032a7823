import { Readable } from 'node:stream'
import { z } from 'zod'
import { LogLine } from '../../lib/host-protocol.ts'
import { NotFound } from '../../lib/problem.ts'
import { placesOfService } from '../../models/deploy/service-places.ts'
import { Service, type ServiceDocument, serviceOf } from '../../models/deploy/services.ts'
import { askService } from '../compute/observation/data-plane.ts'
import { askLogs, logsQuery, sendLogs } from '../compute/observation/logs.ts'
import { replicaLines, type Replicas } from '../compute/observation/replica-lines.ts'
import { textOf } from '../compute/observation/timed-lines.ts'
import { Id } from '../fields.ts'
import { operation, stream } from '../operation.ts'
import { path } from './deployments.ts'

// The output of a service's containers.

const ServiceLine = z
  .object({ ...LogLine.shape, container: z.string(), worker: z.string() })
  .meta({ id: 'ServiceLogLine' })

export const serviceLogs = [
  operation({
    method: 'GET',
    path: `${path}/services/{svc}/logs`,
    permission: 'deploy_servers:read',
    summary: 'Get the output of a service, from all its containers in order of time, or from one container',
    params: z.strictObject({ id: Id, svc: Id }),
    query: z.strictObject({ ...logsQuery, container: z.string().max(40).optional() }),
    responses: {
      200: stream(
        'application/x-ndjson',
        ServiceLine.describe('A line with the field `missing` names a worker that does not answer'),
      ),
    },
    handle: async ({ caller, params, query: { container, ...query }, http: { response } }) => {
      const service = await serviceOf(caller, params.id, params.svc)
      if (container !== undefined && !service.containers.some(({ name }) => name === container))
        throw new NotFound('container of the service')
      const gone = new AbortController()
      response.once('close', () => gone.abort())
      const containers = containersOf(service, container, gone.signal)
      const lines = await replicaLines(containers, await containers.names(), query, gone.signal)
      const text = Readable.from(textOf(lines), { objectMode: false })
      await sendLogs(text, response, { follow: query.follow, timestamps: true })
    },
  }),
]

/** The containers of a service, by the ids of their Swarm services. */
function containersOf(
  { _id, tenant_id }: ServiceDocument,
  only: string | undefined,
  signal: AbortSignal,
): Replicas {
  type Place = Awaited<ReturnType<typeof placesOfService>>[number]
  const known = new Map<string, Place>()
  const now = () => Service.findOne({ _id, tenant_id }).lean()
  const tell = (id: string) => ({ container: known.get(id)?.name, worker: known.get(id)?.node })
  return {
    isThere: async () => Boolean(await now()),
    names: async () => {
      const service = await now()
      const found = service ? await placesOfService(service) : []
      const asked = found.filter(({ name }) => only === undefined || name === only)
      for (const one of asked) known.set(one.service_id, one)
      return asked.map(({ service_id }) => service_id)
    },
    ask: async (id, query) => {
      const place = known.get(id)
      if (!place) throw new NotFound('container')
      return askService(place.host_id, place, askLogs(query), signal)
    },
    lineOf: (id, line) => ({
      time: line.time,
      stream: line.stream,
      text: JSON.stringify({ ...line, ...tell(id) }),
    }),
    remarkOn: (id, missing) => ({ time: '', text: JSON.stringify({ ...tell(id), missing }) }),
  }
}

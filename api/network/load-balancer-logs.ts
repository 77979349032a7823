import { Readable } from 'node:stream'
import type { Request } from 'express'
import { z } from 'zod'
import { AccessLine } from '../../lib/load-balancer-protocol.ts'
import { StateConflict } from '../../lib/problem.ts'
import { isFormerHost, LogArchive, LogPiece } from '../../models/compute/log-archive.ts'
import {
  LoadBalancer,
  type LoadBalancerDocument,
  loadBalancerResource,
  replicasOf,
} from '../../models/network/load-balancers.ts'
import { mine } from '../../models/resources.ts'
import { askHost } from '../compute/observation/data-plane.ts'
import { away, outputOnHost, sendArchive } from '../compute/observation/log-archive.ts'
import { askLogs, logsQuery, sendLogs } from '../compute/observation/logs.ts'
import { type Kept, replicaLines } from '../compute/observation/replica-lines.ts'
import { inOrderOfTime, textOf, type TimedLine } from '../compute/observation/timed-lines.ts'
import { byId } from '../fields.ts'
import { operation, stream } from '../operation.ts'
import { accessLine, makeAccessJoiner, remarkOn } from './access-lines.ts'

// The access log of a load balancer, over all its replicas.

const path = '/api/v1/load-balancers/{id}'

export const loadBalancerLogs = [
  operation({
    method: 'GET',
    path: `${path}/logs`,
    permission: 'load_balancers:read',
    summary:
      'Get the access log of a load balancer: one line for each request, from all replicas, in order of time',
    params: byId,
    query: z.strictObject(logsQuery),
    responses: {
      200: stream(
        'application/x-ndjson',
        AccessLine.describe(
          'One line for each request. A line with the field `missing` names a host that does not answer',
        ),
      ),
    },
    handle: async ({ caller, params: { id }, query, http: { response } }) => {
      const balancer = await mine(loadBalancerResource, caller, id)
      const hosts = await hostsOf(id)
      if (hosts.length === 0) throw new StateConflict('read logs', balancer.status)
      const gone = new AbortController()
      response.once('close', () => gone.abort())
      const { signal } = gone
      const { tenant_id } = balancer
      const lines = await replicaLines(
        {
          isThere: async () => Boolean(await LoadBalancer.exists({ _id: id, tenant_id })),
          names: () => hostsOf(id),
          ask: (host, asked) => askHost(host, id, 'logs', askLogs(asked), signal),
          lineOf: (host, { time, line }) => accessLine(host, time, line),
          remarkOn,
          kept: (host, since) => keptOf({ tenant_id, instance_id: id, host_id: host }, since, signal),
        },
        hosts,
        query,
        signal,
      )
      const text = Readable.from(textOf(lines), { objectMode: false })
      await sendLogs(text, response, { follow: query.follow, timestamps: true })
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/logs/archive`,
    permission: 'load_balancers:read',
    summary:
      'Get the complete access log of a load balancer: the archived part and the part still on its hosts, in order of time',
    lasts: 'archive',
    params: byId,
    responses: {
      200: stream(
        'application/x-ndjson',
        AccessLine.describe(
          'One line for each request, gzipped if `Accept-Encoding` allows it. A line with the field `missing` says where lines are missing; the trailer `X-Archive-Complete` is then `false`',
        ),
      ),
    },
    handle: async ({ caller, params, http: { request, response } }) => {
      const balancer = await mine(loadBalancerResource, caller, params.id)
      const accepted = (request as Request).acceptsEncodings('gzip', 'identity')
      await sendArchive((...reading) => wholeLog(balancer, ...reading), response, {
        compressed: accepted === 'gzip',
        mediaType: 'application/x-ndjson',
      })
    },
  }),
]

/** The hosts that are to run a replica. */
const hostsOf = async (id: string): Promise<string[]> =>
  (await replicasOf(id)).flatMap(({ host_id }) => host_id ?? [])

/** What a former host wrote, from the archive, and from the host while it has any of it. */
function keptOf(
  scope: { tenant_id: string; instance_id: string; host_id: string },
  since: string,
  signal: AbortSignal,
): Kept {
  let rest: ReturnType<Kept['rest']> = 'none'
  async function* lines(): AsyncGenerator<TimedLine[]> {
    // Asked before the archive is read: what is archived meanwhile is read the next time.
    const isAsked = await isFormerHost(scope.instance_id, scope.host_id)
    if (isAsked) rest = 'later'
    const joiner = makeAccessJoiner(scope.host_id)
    const remark = (words: string): TimedLine[] => {
      if (words !== away) return joiner.remark(words)
      rest = 'away'
      return []
    }
    const reading = { isAsked, since: Date.parse(since), signal, onMissing: () => {} }
    yield* outputOnHost(scope, { ...reading, joiner: { ...joiner, remark } })
  }
  return { lines: lines(), rest: () => rest }
}

async function* wholeLog(
  { _id: instance_id, tenant_id }: LoadBalancerDocument,
  signal: AbortSignal,
  onMissing: () => void,
): AsyncGenerator<Buffer> {
  const [now, archive, archived] = await Promise.all([
    hostsOf(instance_id),
    LogArchive.findOne({ _id: instance_id, tenant_id }).lean(),
    LogPiece.distinct('host_id', { instance_id, tenant_id }),
  ])
  const asked = new Set([...now, ...(archive?.former_hosts ?? []).map(({ host_id }) => host_id)])
  const hosts = [...new Set([...archived, ...asked])].toSorted()
  const logs = hosts.map((host_id) =>
    outputOnHost(
      { tenant_id, instance_id, host_id },
      { joiner: makeAccessJoiner(host_id), isAsked: asked.has(host_id), signal, onMissing },
    ),
  )
  yield* textOf(inOrderOfTime(logs))
}

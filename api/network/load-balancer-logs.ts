import { once } from 'node:events'
import { PassThrough, Readable } from 'node:stream'
import { setTimeout as delay } from 'node:timers/promises'
import type { Request } from 'express'
import { z } from 'zod'
import { AccessLine } from '../../lib/load-balancer-protocol.ts'
import type { LogLine } from '../../lib/host-protocol.ts'
import { NotFound, StateConflict, Unavailable } from '../../lib/problem.ts'
import { LogArchive, LogPiece } from '../../models/compute/log-archive.ts'
import {
  LoadBalancer,
  type LoadBalancerDocument,
  loadBalancerResource,
  replicasOf,
} from '../../models/network/load-balancers.ts'
import { mine } from '../../models/resources.ts'
import { askHost } from '../compute/observation/data-plane.ts'
import { outputOnHost, sendArchive } from '../compute/observation/log-archive.ts'
import { askLogs, type LogsQuery, logsQuery, sendLogs } from '../compute/observation/logs.ts'
import { byId } from '../fields.ts'
import { operation, stream } from '../operation.ts'
import { accessLine, inOrderOfTime, makeAccessJoiner, silent, type TimedLine } from './access-lines.ts'

// The access log of a load balancer, over all its replicas.

const path = '/api/v1/load-balancers/{id}'

export const loadBalancerLogs = [
  operation({
    method: 'GET',
    path: `${path}/logs`,
    permission: 'load_balancers:read',
    summary:
      'Get the access log of a load balancer: one line for each request, of all replicas in order of time',
    params: byId,
    query: z.strictObject(logsQuery),
    responses: { 200: stream('application/x-ndjson', AccessLine) },
    handle: async ({ caller, params: { id }, query, http: { response } }) => {
      const balancer = await mine(loadBalancerResource, caller, id)
      const hosts = await hostsOf(id)
      if (hosts.length === 0) throw new StateConflict('read logs', balancer.status)
      const gone = new AbortController()
      response.once('close', () => gone.abort())
      const { signal } = gone
      const { lines, seen } = await present(id, hosts, query, signal)
      const all = query.follow ? inTurn(lines, followed(balancer, seen, query, signal)) : lines
      const text = Readable.from(textOf(all), { objectMode: false })
      await sendLogs(text, response, { follow: query.follow, timestamps: true })
    },
  }),

  operation({
    method: 'GET',
    path: `${path}/logs/archive`,
    permission: 'load_balancers:read',
    summary:
      'Get the complete access log of a load balancer: what is archived and what is still on its hosts, in order of time',
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

async function* textOf(batches: AsyncIterable<TimedLine[]>): AsyncGenerator<Buffer> {
  for await (const lines of batches) yield Buffer.from(lines.map(({ text }) => `${text}\n`).join(''))
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
  const hosts = [...new Set([...archived, ...asked])]
  const logs = hosts.map((host_id) =>
    outputOnHost(
      { tenant_id, instance_id, host_id },
      { joiner: makeAccessJoiner(host_id), isAsked: asked.has(host_id), signal, onMissing },
    ),
  )
  yield* textOf(inOrderOfTime(logs))
}

/**
 * The lines that the hosts have now, after a remark for each host that does not answer. Throws Unavailable if none does.
 * `seen` gets the time of each host's last line as it is read.
 */
async function present(
  id: string,
  hosts: string[],
  query: LogsQuery,
  signal: AbortSignal,
): Promise<{ lines: AsyncIterable<TimedLine[]>; seen: Map<string, string> }> {
  const seen = new Map<string, string>()
  // Also without any lines wanted: following begins after the last one.
  const lines = query.lines === undefined ? undefined : Math.max(query.lines, 1)
  const answers = await Promise.allSettled(
    hosts.map(async (host) => {
      const answer = await ask(host, id, { ...query, lines, follow: false }, signal)
      return noting(seen, host, linesOf(host, answer))
    }),
  )
  const there = answers.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  const failure = answers.find((one) => one.status === 'rejected')
  if (there.length === 0 && failure) throw failure.reason
  const merged = inOrderOfTime(there)
  const remarks = hosts.filter((_, i) => answers[i]?.status === 'rejected').map(silent)
  const found = query.lines === undefined ? merged : lastOf(merged, query.lines)
  return { lines: inTurn([remarks], found), seen }
}

/** Empty if the host does not have the load balancer yet. */
async function ask(host: string, id: string, query: LogsQuery, signal: AbortSignal): Promise<Readable> {
  try {
    const answer = await askHost(host, id, 'logs', askLogs(query), signal)
    answer.on('error', () => {}) // whoever reads it gets the error
    return answer
  } catch (error) {
    if (error instanceof NotFound) return Readable.from([])
    throw error
  }
}

async function* linesOf(host: string, answer: Readable): AsyncGenerator<TimedLine[]> {
  let rest = ''
  for await (const part of answer.setEncoding('utf8')) {
    const lines = (rest + String(part)).split('\n')
    rest = lines.pop() ?? ''
    yield lines.map((text) => {
      const { time, line } = JSON.parse(text) as LogLine
      return accessLine(host, time, line)
    })
  }
}

async function* noting(
  seen: Map<string, string>,
  host: string,
  batches: AsyncIterable<TimedLine[]>,
): AsyncGenerator<TimedLine[]> {
  for await (const lines of batches) {
    const last = lines.at(-1)
    if (last) seen.set(host, last.time)
    yield lines
  }
}

async function* lastOf(batches: AsyncIterable<TimedLine[]>, count: number): AsyncGenerator<TimedLine[]> {
  let kept: TimedLine[] = []
  for await (const lines of batches) {
    kept.push(...lines)
    if (kept.length > 2 * count) kept = count > 0 ? kept.slice(-count) : []
  }
  if (count > 0) yield kept.slice(-count)
}

async function* inTurn<T>(first: AsyncIterable<T> | T[], next: AsyncIterable<T>): AsyncGenerator<T> {
  yield* first
  yield* next
}

// How soon a replica on another host is followed.
const lookEveryMs = 2_000
const mostWaiting = 100

/** New lines of all replicas as they come, also of those that come to other hosts, until the load balancer is gone. */
async function* followed(
  { _id: id, tenant_id }: LoadBalancerDocument,
  seen: Map<string, string>,
  { since }: LogsQuery,
  signal: AbortSignal,
): AsyncGenerator<TimedLine[]> {
  const lines = new PassThrough({ objectMode: true, highWaterMark: mostWaiting })
  const reading = new Map<string, Promise<void>>()

  /** Until the host ends its answer or goes away: the next look asks again. */
  async function read(host: string): Promise<void> {
    try {
      const answer = await ask(host, id, { follow: true, since: seen.get(host) ?? since }, signal)
      for await (const batch of linesOf(host, answer)) {
        const fresh = batch.filter(({ time }) => time > (seen.get(host) ?? ''))
        const last = fresh.at(-1)
        if (!last) continue
        seen.set(host, last.time)
        if (!lines.write(fresh)) await once(lines, 'drain', { signal })
      }
    } catch (error) {
      if (!signal.aborted && !(error instanceof Unavailable) && !isBrokenOff(error))
        lines.destroy(error as Error)
    } finally {
      reading.delete(host)
    }
  }

  async function look(): Promise<void> {
    while (!signal.aborted && (await LoadBalancer.exists({ _id: id, tenant_id }))) {
      for (const host of await hostsOf(id)) if (!reading.has(host)) reading.set(host, read(host))
      await delay(lookEveryMs, undefined, { signal }).catch(() => undefined)
    }
    await Promise.all(reading.values())
  }

  look().then(
    () => lines.end(),
    (error: unknown) => lines.destroy(error as Error),
  )
  yield* lines as AsyncIterable<TimedLine[]>
}

/** As `fetch` says that the other side has closed the connection. */
const isBrokenOff = (error: unknown): boolean => error instanceof TypeError && error.message === 'terminated'

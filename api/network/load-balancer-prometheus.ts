import { json } from 'node:stream/consumers'
import { Counter, Gauge, Registry } from 'prom-client'
import { z } from 'zod'
import type { ResponseClass } from '../../drivers/load-balancers.ts'
import { type CountersNow, LoadBalancerCounters } from '../../lib/load-balancer-protocol.ts'
import { StateConflict } from '../../lib/problem.ts'
import { Route } from '../../models/network/load-balancer-routes.ts'
import { loadBalancerResource, replicasOf } from '../../models/network/load-balancers.ts'
import { mine } from '../../models/resources.ts'
import { askHost } from '../compute/observation/data-plane.ts'
import { byId } from '../fields.ts'
import { operation, stream } from '../operation.ts'

// The counters of a load balancer as they are now on its hosts, for a Prometheus of its tenant.

export const loadBalancerPrometheus = [
  operation({
    method: 'GET',
    path: '/api/v1/load-balancers/{id}/metrics/prometheus',
    permission: 'load_balancers:read',
    summary: 'Get the counters of a load balancer, its routes and their targets in Prometheus format',
    params: byId,
    responses: { 200: stream('text/plain', z.string().describe('A series for each replica')) },
    handle: async ({ caller, params: { id }, http: { response } }) => {
      const { tenant_id, status } = await mine(loadBalancerResource, caller, id)
      const hosts = (await replicasOf(id)).flatMap(({ host_id }) => host_id ?? [])
      if (hosts.length === 0) throw new StateConflict('read metrics', status)
      const gone = new AbortController()
      response.once('close', () => gone.abort())
      const [replicas, routes] = await Promise.all([
        countersOn(hosts, id, gone.signal),
        Route.find({ tenant_id, lb_id: id }, { name: 1 }).lean(),
      ])
      const { text, contentType } = await written(
        replicas,
        new Map(routes.map(({ _id, name }) => [_id, name])),
      )
      response.writeHead(200, { 'Content-Type': contentType, 'Cache-Control': 'no-store' }).end(text)
    },
  }),
]

interface Replica {
  host_id: string
  rows: CountersNow[]
}

/** Hosts that do not answer are left out, unless none answers: then it throws NotFound or Unavailable. */
async function countersOn(hosts: string[], id: string, signal: AbortSignal): Promise<Replica[]> {
  const answers = await Promise.allSettled(
    hosts.map(async (host_id): Promise<Replica> => {
      const answer = await json(await askHost(host_id, id, 'counters', new URLSearchParams(), signal))
      return { host_id, rows: LoadBalancerCounters.parse(answer).routes }
    }),
  )
  const there = answers.flatMap((one) => (one.status === 'fulfilled' ? [one.value] : []))
  const failure = answers.find((one) => one.status === 'rejected')
  if (there.length === 0 && failure) throw failure.reason
  return there
}

async function written(
  replicas: Replica[],
  names: Map<string, string>,
): Promise<{ text: string; contentType: string }> {
  const registry = new Registry()
  // Metrics of their own for each level, so that a sum counts no request twice.
  const all = levelOf(registry, 'keelson_load_balancer', ['host_id'])
  const ofRoute = levelOf(registry, 'keelson_load_balancer_route', ['host_id', 'route_id', 'route'])
  const ofTarget = levelOf(registry, 'keelson_load_balancer_target', [
    'host_id',
    'route_id',
    'route',
    'target_id',
  ])
  for (const { host_id, rows } of replicas) {
    for (const row of rows) {
      const { route_id, target_id } = row
      if (route_id === null) all({ host_id }, row)
      else {
        const labels = { host_id, route_id, route: names.get(route_id) ?? '' }
        if (target_id === null) ofRoute(labels, row)
        else ofTarget({ ...labels, target_id }, row)
      }
    }
  }
  return { text: await registry.metrics(), contentType: registry.contentType }
}

const quantiles = { p50_ms: '0.5', p95_ms: '0.95', p99_ms: '0.99' } as const

/** Registers the metrics of one level, and returns the function that sets them. */
function levelOf(registry: Registry, prefix: string, labelNames: string[]) {
  const registers = [registry]
  const requests = new Counter({
    name: `${prefix}_requests_total`,
    help: 'Requests, by the class of the response',
    labelNames: [...labelNames, 'response'],
    registers,
  })
  const bytes = new Counter({
    name: `${prefix}_bytes_total`,
    help: 'Bytes from clients (in) and to clients (out), with headers',
    labelNames: [...labelNames, 'direction'],
    registers,
  })
  const connections = new Gauge({
    name: `${prefix}_connections`,
    help: 'Open connections to targets',
    labelNames,
    registers,
  })
  const latency = new Gauge({
    name: `${prefix}_latency_seconds`,
    help: 'From the request to the first byte of the response, over the last minute',
    labelNames: [...labelNames, 'quantile'],
    registers,
  })
  return (labels: Record<string, string>, row: CountersNow): void => {
    for (const [response, count] of Object.entries(row.responses) as [ResponseClass, number][])
      requests.inc({ ...labels, response }, count)
    bytes.inc({ ...labels, direction: 'in' }, row.bytes_in)
    bytes.inc({ ...labels, direction: 'out' }, row.bytes_out)
    connections.set(labels, row.connections)
    for (const [name, quantile] of Object.entries(quantiles) as [keyof typeof quantiles, string][]) {
      const ms = row[name]
      if (ms !== null) latency.set({ ...labels, quantile }, ms / 1000)
    }
  }
}

import { z } from 'zod'
import { routeOf } from '../../models/network/load-balancer-routes.ts'
import { type ServedInStep, servedBy } from '../../models/network/load-balancer-usage.ts'
import { loadBalancerResource } from '../../models/network/load-balancers.ts'
import { mine } from '../../models/resources.ts'
import { MetricsQuery, plan, Points, round, secondMs } from '../compute/observation/metrics.ts'
import { byId, Id, time } from '../fields.ts'
import { operation } from '../operation.ts'

// What a load balancer, its routes and their targets serve, as series for charts.

const series = [
  ['requests', 'requests', ({ counted }) => counted && counted.requests],
  ['responses_2xx', 'requests', ({ counted }) => counted && counted.responses_2xx],
  ['responses_3xx', 'requests', ({ counted }) => counted && counted.responses_3xx],
  ['responses_4xx', 'requests', ({ counted }) => counted && counted.responses_4xx],
  ['responses_5xx', 'requests', ({ counted }) => counted && counted.responses_5xx],
  ['responses_other', 'requests', ({ counted }) => counted && counted.responses_other],
  ['bytes_in', 'bytes', ({ counted }) => counted && counted.bytes_in],
  ['bytes_out', 'bytes', ({ counted }) => counted && counted.bytes_out],
  ['connections', 'connections', ({ connections }) => round(connections, 2)],
  ['latency_p50', 'ms', ({ p50_ms }) => p50_ms],
  ['latency_p95', 'ms', ({ p95_ms }) => p95_ms],
  ['latency_p99', 'ms', ({ p99_ms }) => p99_ms],
] as const satisfies [string, string, (served: ServedInStep) => number | null][]

const LoadBalancerMetricsView = z
  .strictObject({
    step_sec: z.int(),
    series: z.array(
      z.strictObject({
        route_id: Id.nullable().describe('Null: the whole load balancer, with requests that no route took'),
        target_id: Id.nullable().describe('Null: all targets, with requests that reached none'),
        name: z.enum(series.map(([name]) => name)),
        unit: z.enum(['requests', 'bytes', 'connections', 'ms']),
        points: Points.describe(
          'Pairs of a step’s start and its value, over all replicas. Requests and bytes: the sum. Connections: the mean of the open connections to targets. Latencies, from the request to the first byte of the response: the largest of the step’s samples, each over one minute of one replica; without requests there is no point. The last step may be incomplete',
        ),
      }),
    ),
  })
  .meta({ id: 'LoadBalancerMetrics' })

export const loadBalancerMetrics = [
  operation({
    method: 'GET',
    path: '/api/v1/load-balancers/{id}/metrics',
    permission: 'load_balancers:read',
    summary:
      'Get the requests, errors, latencies, connections and bytes of a load balancer, or of a route and its targets',
    params: byId,
    query: z.strictObject({
      ...MetricsQuery.shape,
      route_id: Id.optional().describe('The route; default: the whole load balancer'),
    }),
    responses: { 200: LoadBalancerMetricsView },
    handle: async ({ caller, params: { id }, query: { route_id = null, ...query } }) => {
      const { tenant_id } = await mine(loadBalancerResource, caller, id)
      if (route_id !== null) await routeOf(tenant_id, id, route_id)
      const { record, ...range } = plan(query, Date.now())
      const served = await servedBy({ tenant_id, load_balancer_id: id }, route_id, record, range)
      return {
        step_sec: range.stepMs / secondMs,
        series: served.flatMap(({ target_id, steps }) =>
          series.map(([name, unit, valueIn]) => ({
            route_id,
            target_id,
            name,
            unit,
            points: steps.flatMap((step): [string, number][] => {
              const value = valueIn(step)
              return value === null ? [] : [[time(step.time), value]]
            }),
          })),
        ),
      }
    },
  }),
]

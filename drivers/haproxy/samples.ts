import type { LoadBalancerState, RouteSample } from '../load-balancers.ts'
import type { Tallied } from './tallies.ts'

// Samples for metrics: sums and latencies from the access log, open connections from HAProxy.

const latencyOf = ({ latencies }: Tallied, route: string, target: string | null) => {
  const found = latencies.find((one) => one.route_id === route && one.target_id === target)
  const [p50, p95, p99] = found?.ms ?? [null, null, null]
  return { p50_ms: p50, p95_ms: p95, p99_ms: p99 }
}

/** Only of routes and targets that exist: others are forgotten. */
export function samplesOf(
  routes: { id: string; targets: { id: string }[] }[],
  tallied: Tallied,
  targets: LoadBalancerState['targets'],
): RouteSample[] {
  return routes.flatMap(({ id, targets: its }) => {
    const mine = tallied.tallies.filter(({ route_id }) => route_id === id)
    const open = targets.filter(({ route_id }) => route_id === id)
    const sumOf = (of: typeof mine, connections: number, target_id: string | null): RouteSample => ({
      route_id: id,
      target_id,
      requests: of.reduce((sum, { requests }) => sum + requests, 0),
      responses: responsesOf(of.map(({ responses }) => responses)),
      connections,
      bytes_in: of.reduce((sum, { bytes_in }) => sum + bytes_in, 0),
      bytes_out: of.reduce((sum, { bytes_out }) => sum + bytes_out, 0),
      ...latencyOf(tallied, id, target_id),
    })
    const all = open.reduce((sum, { connections }) => sum + connections, 0)
    return [
      sumOf(mine, all, null),
      ...its.map((target) =>
        sumOf(
          mine.filter(({ target_id }) => target_id === target.id),
          open.find(({ target_id }) => target_id === target.id)?.connections ?? 0,
          target.id,
        ),
      ),
    ]
  })
}

function responsesOf(all: Record<string, number>[]): Record<string, number> {
  const sums: Record<string, number> = { '2xx': 0, '3xx': 0, '4xx': 0, '5xx': 0, other: 0 }
  for (const one of all)
    for (const [name, count] of Object.entries(one)) sums[name] = (sums[name] ?? 0) + count
  return sums
}

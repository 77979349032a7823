import { type LoadBalancerState, type RouteSample, responseClasses } from '../load-balancers.ts'
import type { Tallied, Tally } from './tallies.ts'

// Samples for metrics: sums and latencies from the access log, open connections from HAProxy.

type Sums = Pick<Tallied, 'tallies' | 'latencies'>

const latencyOf = ({ latencies }: Sums, route: string | null, target: string | null) => {
  const found = latencies.find((one) => one.route_id === route && one.target_id === target)
  const [p50, p95, p99] = found?.ms ?? [null, null, null]
  return { p50_ms: p50, p95_ms: p95, p99_ms: p99 }
}

const ofTarget =
  (id: string) =>
  ({ target_id }: { target_id: string | null }): boolean =>
    target_id === id

/** The sum of all requests, then the routes and targets that exist: others are in the sums above them only. */
export function samplesOf(
  routes: { id: string; targets: { id: string }[] }[],
  tallied: Sums,
  targets: LoadBalancerState['targets'],
): RouteSample[] {
  const tallies = Map.groupBy(tallied.tallies, ({ route_id }) => route_id)
  const connections = Map.groupBy(targets, ({ route_id }) => route_id)
  const sumOf = (
    [route_id, target_id]: [string | null, string | null],
    of: Tally[],
    open: LoadBalancerState['targets'],
  ): RouteSample => ({
    route_id,
    target_id,
    requests: of.reduce((sum, { requests }) => sum + requests, 0),
    responses: responsesOf(of.map(({ responses }) => responses)),
    connections: open.reduce((sum, one) => sum + one.connections, 0),
    bytes_in: of.reduce((sum, { bytes_in }) => sum + bytes_in, 0),
    bytes_out: of.reduce((sum, { bytes_out }) => sum + bytes_out, 0),
    ...latencyOf(tallied, route_id, target_id),
  })
  const ofRoutes = routes.flatMap(({ id, targets: its }) => {
    const [mine, open] = [tallies.get(id) ?? [], connections.get(id) ?? []]
    return [
      sumOf([id, null], mine, open),
      ...its.map((target) =>
        sumOf([id, target.id], mine.filter(ofTarget(target.id)), open.filter(ofTarget(target.id))),
      ),
    ]
  })
  return [sumOf([null, null], tallied.tallies, targets), ...ofRoutes]
}

function responsesOf(all: Tally['responses'][]): RouteSample['responses'] {
  const sums = { '2xx': 0, '3xx': 0, '4xx': 0, '5xx': 0, other: 0 }
  for (const one of all) for (const name of responseClasses) sums[name] += one[name] ?? 0
  return sums
}

import {
  type LoadBalancerEngine,
  type LoadBalancerSamples,
  responseClasses,
  type RouteSample,
} from '../../drivers/load-balancers.ts'
import {
  countersPerMessage,
  countersRepeatedMs,
  type HostLoadBalancerSamples,
  type LoadBalancerSample,
  type RouteCounters,
} from '../../lib/load-balancer-protocol.ts'
import { metrics } from '../../lib/metrics.ts'
import type { TakeSamples } from './sampler.ts'

// A load balancer has up to 100,000 routes and targets, of which few serve requests at any time. Only what changes is
// sent, and all of it once an hour.

interface Parts {
  engine: Pick<LoadBalancerEngine, 'samples'>
  /** The load balancers on this host. */
  ids: () => string[]
  send: (samples: HostLoadBalancerSamples) => Promise<void>
}

/** The counters of one load balancer at a moment. */
export type Taken = LoadBalancerSamples & { id: string; time: string }

/** Samples what load balancers serve. */
export function sampleLoadBalancers({ engine, ids, send }: Parts): TakeSamples {
  const thinner = makeThinner()
  const count = makeCount()
  return async () => {
    const found = await Promise.all(ids().map(async (id) => ({ id, samples: await engine.samples(id) })))
    const time = new Date().toISOString()
    const taken = found.flatMap(({ id, samples }) => (samples ? [{ id, time, ...samples }] : []))
    count(taken)
    for (const message of inMessages(thinner.thin(taken))) await send(message)
    thinner.accepted()
  }
}

/** A row as it was last stored in a record. */
interface Stored {
  text: string
  atMs: number
}

interface KnownRow {
  row: RouteSample
  raw: Stored
  byMinute: Stored
}

/** What is known of a load balancer since it came to the host. */
interface Stay {
  id: string
  started_at: string
  time: string
  rows: Map<string, KnownRow>
}

/** Chooses the rows to send, based on those accepted before. */
export function makeThinner() {
  let known = new Map<string, Stay>()
  let next = known

  /** The last rows of a stay that has ended: only they have what was served since the minute began. */
  const lastOf = ({ id, started_at, time, rows }: Stay): LoadBalancerSample => ({
    id,
    time,
    started_at,
    routes: [...rows.values()].flatMap(({ row, byMinute }) =>
      JSON.stringify(row) === byMinute.text ? [] : [{ ...row, by_minute: true }],
    ),
  })

  function present({ id, time, started_at, routes }: Taken): { sample: LoadBalancerSample; stay: Stay } {
    const before = known.get(id)
    const is = before?.started_at === started_at ? before : null
    const isMinute = is === null || minuteOf(is.time) !== minuteOf(time)
    const stay: Stay = { id, started_at, time, rows: new Map() }
    const sent = routes.flatMap((row): RouteCounters[] => {
      const key = `${row.route_id} ${row.target_id}`
      const was = is?.rows.get(key)
      const now: Stored = { text: JSON.stringify(row), atMs: Date.parse(time) }
      const raw = isNews(row, was?.raw, now)
      const by_minute = was === undefined || (isMinute && isNews(row, was.byMinute, now))
      stay.rows.set(key, {
        row,
        raw: raw || !was ? now : was.raw,
        byMinute: by_minute ? now : was.byMinute,
      })
      return raw || by_minute ? [{ ...row, by_minute }] : []
    })
    return { sample: { id, time, started_at, routes: sent }, stay }
  }

  return {
    thin(taken: Taken[]): LoadBalancerSample[] {
      const stays = new Map(taken.map(({ id, started_at }) => [id, started_at]))
      const ended = [...known.values()].filter(({ id, started_at }) => stays.get(id) !== started_at)
      const now = taken.map(present)
      next = new Map(now.map(({ stay }) => [stay.id, stay]))
      return [...ended.map(lastOf), ...now.map(({ sample }) => sample)]
    },
    accepted(): void {
      known = next
    },
  }
}

// Sent before it is due, so that it is never overdue.
const repeatedAfterMs = countersRepeatedMs - 120_000

/** The sum of all requests is always sent: it shows that an absent row has not changed. */
const isNews = (row: RouteSample, was: Stored | undefined, now: Stored): boolean =>
  row.route_id === null ||
  row.connections > 0 ||
  row.p50_ms !== null ||
  was?.text !== now.text ||
  now.atMs - was.atMs > repeatedAfterMs

const minuteOf = (time: string): number => Math.floor(Date.parse(time) / 60_000)

/** Divides samples so that no message has too many rows. */
export function inMessages(samples: LoadBalancerSample[]): HostLoadBalancerSamples[] {
  const messages: HostLoadBalancerSamples[] = []
  let room = 0
  for (const { routes, ...sample } of samples) {
    for (let at = 0; at < routes.length; ) {
      if (room === 0) {
        messages.push({ samples: [] })
        room = countersPerMessage
      }
      const some = routes.slice(at, at + room)
      messages.at(-1)?.samples.push({ ...sample, routes: some })
      at += some.length
      room -= some.length
    }
  }
  return messages
}

/** Counts what all load balancers of this host serve, for Prometheus: without their names. */
function makeCount(): (taken: Taken[]) => void {
  let before = new Map<string, { started_at: string; total: RouteSample }>()
  return (taken) => {
    const now: typeof before = new Map()
    for (const { id, started_at, routes } of taken) {
      const [total] = routes
      if (!total) continue
      now.set(id, { started_at, total })
      const was = before.get(id)
      if (was?.started_at === started_at) countBetween(was.total, total)
    }
    const connections = [...now.values()].reduce((sum, { total }) => sum + total.connections, 0)
    metrics.balancedConnections.set(connections)
    before = now
  }
}

function countBetween(was: RouteSample, is: RouteSample): void {
  for (const response of responseClasses)
    metrics.balancedRequests.inc({ response }, Math.max(0, is.responses[response] - was.responses[response]))
  metrics.balancedBytes.inc({ direction: 'in' }, Math.max(0, is.bytes_in - was.bytes_in))
  metrics.balancedBytes.inc({ direction: 'out' }, Math.max(0, is.bytes_out - was.bytes_out))
}

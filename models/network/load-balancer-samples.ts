import mongoose, { Schema } from 'mongoose'
import {
  countersRepeatedMs,
  type LoadBalancerSample,
  type RouteCounters,
} from '../../lib/load-balancer-protocol.ts'
import { sampleEveryMs } from '../../lib/host-protocol.ts'
import { ownersOn } from '../compute/reservations.ts'
import { schemaOptions } from '../schemas.ts'
import { tenantScoped } from '../tenant-scope.ts'

/**
 * The counters of one route or target on one host at a moment. As for instances, rows hold counters and not
 * differences. A row that has not changed is stored once an hour; the sum of all requests (both ids null) always.
 */
export interface CountersDocument
  extends Omit<RouteCounters, 'route_id' | 'target_id' | 'responses' | 'by_minute'> {
  meta: {
    tenant_id: string
    load_balancer_id: string
    host_id: string
    route_id: string | null
    target_id: string | null
  }
  time: Date
  /** Identifies the stay on the host: the counters start at 0 in each. */
  started_at: Date
  responses_2xx: number
  responses_3xx: number
  responses_4xx: number
  responses_5xx: number
  responses_other: number
}

const daySec = 86_400

/** The two records, with their sampling interval. */
export const counterRecords = {
  raw: { model: recordOf('LoadBalancerSample', 'load_balancer_samples', daySec), everyMs: sampleEveryMs },
  byMinute: {
    model: recordOf('LoadBalancerMinuteSample', 'load_balancer_samples_by_minute', 15 * daySec),
    everyMs: 60_000,
  },
}

function recordOf(
  model: string,
  collection: string,
  expireAfterSeconds: number,
): mongoose.Model<CountersDocument> {
  const text = { type: String, required: true }
  const counter = { type: Number, required: true }
  const latency = { type: Number, default: null }
  const schema = new Schema<CountersDocument>(
    {
      meta: {
        tenant_id: text,
        load_balancer_id: text,
        host_id: text,
        route_id: { type: String, default: null },
        target_id: { type: String, default: null },
      },
      time: { type: Date, required: true },
      started_at: { type: Date, required: true },
      requests: counter,
      responses_2xx: counter,
      responses_3xx: counter,
      responses_4xx: counter,
      responses_5xx: counter,
      responses_other: counter,
      connections: counter,
      bytes_in: counter,
      bytes_out: counter,
      p50_ms: latency,
      p95_ms: latency,
      p99_ms: latency,
    },
    {
      ...schemaOptions,
      collection,
      timeseries: {
        timeField: 'time',
        metaField: 'meta',
        granularity: collection === 'load_balancer_samples' ? 'seconds' : 'minutes',
      },
      expireAfterSeconds,
    },
  )
  tenantScoped(schema)
  schema.index({ 'meta.tenant_id': 1, 'meta.load_balancer_id': 1, 'meta.route_id': 1, time: 1 })
  return mongoose.model<CountersDocument>(model, schema)
}

/** Stores a host's samples of the load balancers that it has. Ignores those of others. */
export async function recordLoadBalancerSamples(
  hostId: string,
  samples: LoadBalancerSample[],
): Promise<void> {
  const tenants = await ownersOn(
    hostId,
    samples.map(({ id }) => id),
  )
  const toRow = (
    { id, time, started_at }: LoadBalancerSample,
    { route_id, target_id, responses, ...row }: RouteCounters,
  ): CountersDocument[] => {
    const tenant_id = tenants.get(id)
    if (tenant_id === undefined) return []
    return [
      {
        meta: { tenant_id, load_balancer_id: id, host_id: hostId, route_id, target_id },
        time: new Date(time),
        started_at: new Date(started_at),
        requests: row.requests,
        responses_2xx: responses['2xx'],
        responses_3xx: responses['3xx'],
        responses_4xx: responses['4xx'],
        responses_5xx: responses['5xx'],
        responses_other: responses.other,
        connections: row.connections,
        bytes_in: row.bytes_in,
        bytes_out: row.bytes_out,
        p50_ms: row.p50_ms,
        p95_ms: row.p95_ms,
        p99_ms: row.p99_ms,
      },
    ]
  }
  const rows = samples.flatMap((sample) => sample.routes.flatMap((route) => toRow(sample, route)))
  const ofMinute = samples.flatMap((sample) =>
    sample.routes.filter(({ by_minute }) => by_minute).flatMap((route) => toRow(sample, route)),
  )
  if (rows.length) await counterRecords.raw.model.collection.insertMany(rows, { ordered: false })
  if (ofMinute.length) await counterRecords.byMinute.model.collection.insertMany(ofMinute, { ordered: false })
}

const counters = [
  'requests',
  'responses_2xx',
  'responses_3xx',
  'responses_4xx',
  'responses_5xx',
  'responses_other',
  'bytes_in',
  'bytes_out',
] as const
const latencies = ['p50_ms', 'p95_ms', 'p99_ms'] as const
type Counters = Record<(typeof counters)[number], number>
type Latencies = Record<(typeof latencies)[number], number | null>

/** What a load balancer, a route or a target served in one step, over all replicas. */
export interface ServedInStep extends Latencies {
  /** The start of the step. */
  time: Date
  /** Null if no replica has an earlier row to count from. */
  counted: Counters | null
  /** The mean of the open connections. */
  connections: number
}

export interface Served {
  route_id: string | null
  target_id: string | null
  steps: ServedInStep[]
}

interface Range {
  fromMs: number
  toMs: number
  stepMs: number
}

/** The last counters of one row of one stay in one step. Counters never decrease within a stay. */
interface StepOfRow extends Counters, Latencies {
  _id: { host: string; stay: Date; route: string | null; target: string | null; step: Date }
  rows: number
  /** The sum over the rows. */
  connections: number
}

/** The origin of the steps of `$dateTrunc`. */
const originMs = Date.UTC(2000, 0, 1)

/**
 * What was served in each step that overlaps `fromMs` to `toMs`: by the load balancer, or by one route and its targets.
 * Counters and connections are summed over the replicas. A latency is the largest of the samples, each of which is over
 * one minute of one replica.
 */
export async function servedBy(
  { tenant_id, load_balancer_id }: Pick<CountersDocument['meta'], 'tenant_id' | 'load_balancer_id'>,
  routeId: string | null,
  record: keyof typeof counterRecords,
  { fromMs, toMs, stepMs }: Range,
): Promise<Served[]> {
  const firstMs = originMs + Math.floor((fromMs - originMs) / stepMs) * stepMs
  const endMs = originMs + Math.ceil((toMs - originMs) / stepMs) * stepMs
  const { model, everyMs } = counterRecords[record]
  // As for instances: a row covers the interval before it.
  const backMs = everyMs / 2
  const sinceMs = firstMs - countersRepeatedMs - 3 * everyMs
  const rows = await model.aggregate<StepOfRow>([
    {
      $match: {
        'meta.tenant_id': tenant_id,
        'meta.load_balancer_id': load_balancer_id,
        'meta.route_id': { $in: [null, routeId] },
        time: { $gte: new Date(sinceMs + backMs), $lt: new Date(endMs + backMs) },
      },
    },
    {
      $group: {
        _id: {
          host: '$meta.host_id',
          stay: '$started_at',
          route: '$meta.route_id',
          target: '$meta.target_id',
          step: {
            $dateTrunc: { date: { $subtract: ['$time', backMs] }, unit: 'second', binSize: stepMs / 1000 },
          },
        },
        rows: { $sum: 1 },
        connections: { $sum: '$connections' },
        ...Object.fromEntries([...counters, ...latencies].map((name) => [name, { $max: `$${name}` }])),
      },
    },
    { $sort: { '_id.step': 1 } },
  ])
  const isTotal = ({ _id: { route } }: StepOfRow): boolean => route === null
  const totals = staysOf(rows.filter(isTotal), sinceMs)
  const wanted = rows.filter((row) => isTotal(row) === (routeId === null))
  const targets = Map.groupBy(wanted, ({ _id: { target } }) => target)
  if (!targets.has(null)) targets.set(null, [])
  return [...targets].map(([target_id, of]) => ({
    route_id: routeId,
    target_id,
    steps: inSteps(totals, of).filter(({ time }) => time.getTime() >= firstMs),
  }))
}

/** The total rows of one stay by step, and whether the stay began in the range. */
interface Stay {
  began: boolean
  steps: Map<number, StepOfRow>
}

const stayOf = ({ _id: { host, stay } }: StepOfRow): string => `${host} ${stay.getTime()}`

const staysOf = (totals: StepOfRow[], sinceMs: number): Map<string, Stay> =>
  new Map(
    [...Map.groupBy(totals, stayOf)].map(([name, rows]) => [
      name,
      {
        began: (rows[0]?._id.stay.getTime() ?? 0) >= sinceMs,
        steps: new Map(rows.map((row) => [row._id.step.getTime(), row])),
      },
    ]),
  )

/** One result for each step with total rows: in such a step, a row that is missing has not changed. */
function inSteps(stays: Map<string, Stay>, rows: StepOfRow[]): ServedInStep[] {
  const byStay = Map.groupBy(rows, stayOf)
  const parts = [...stays].flatMap(([name, stay]) => partsOf(stay, byStay.get(name) ?? []))
  return [...Map.groupBy(parts, ({ time }) => time.getTime())]
    .toSorted(([one], [other]) => one - other)
    .map(([, of]) => of.reduce(together))
}

function partsOf({ began, steps }: Stay, rows: StepOfRow[]): ServedInStep[] {
  const byStep = new Map(rows.map((row) => [row._id.step.getTime(), row]))
  let before: Counters | null = began ? none : null
  let isFirst = true
  return [...steps].map(([step, total]) => {
    const row = byStep.get(step)
    // A row that appears while its replica is already observed is new, and counts from 0.
    const base = before ?? (isFirst || row === total ? null : none)
    isFirst = false
    const counted = row ? base && differences(row, base) : none
    before = row ?? before
    return {
      time: new Date(step),
      counted,
      connections: (row?.connections ?? 0) / total.rows,
      ...(mapNames(latencies, (name) => row?.[name] ?? null) as Latencies),
    }
  })
}

const mapNames = <Name extends string, T>(names: readonly Name[], of: (name: Name) => T) =>
  Object.fromEntries(names.map((name) => [name, of(name)])) as Record<Name, T>

const none: Counters = mapNames(counters, () => 0)
const differences = (row: Counters, base: Counters): Counters =>
  mapNames(counters, (name) => Math.max(0, row[name] - base[name]))

function together(one: ServedInStep, other: ServedInStep): ServedInStep {
  const [a, b] = [one.counted, other.counted]
  return {
    time: one.time,
    counted: a && b ? mapNames(counters, (name) => a[name] + b[name]) : (a ?? b),
    connections: one.connections + other.connections,
    ...(mapNames(latencies, (name) => largest(one[name], other[name])) as Latencies),
  }
}

const largest = (one: number | null, other: number | null): number | null =>
  one === null ? other : Math.max(one, other ?? 0)

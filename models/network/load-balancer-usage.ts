import { countersRepeatedMs } from '../../lib/load-balancer-protocol.ts'
import { type Range, stepsOf } from '../compute/steps.ts'
import { counterRecords, type CountersDocument } from './load-balancer-samples.ts'

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

/** The last counters of one row of one stay in one step. Counters never decrease within a stay. */
interface StepOfRow extends Counters, Latencies {
  _id: { host: string; stay: Date; route: string | null; target: string | null; step: Date }
  rows: number
  /** The sum over the rows. */
  connections: number
}

/**
 * What was served in each step that overlaps `fromMs` to `toMs`: by the load balancer, or by one route and its targets.
 * Counters and connections are summed over the replicas. A latency is the largest of the samples, each of which is over
 * one minute of one replica.
 */
export async function servedBy(
  { tenant_id, load_balancer_id }: Pick<CountersDocument['meta'], 'tenant_id' | 'load_balancer_id'>,
  routeId: string | null,
  record: keyof typeof counterRecords,
  range: Range,
): Promise<Served[]> {
  const { model, everyMs } = counterRecords[record]
  const { firstMs, step, rowsSince } = stepsOf(range, everyMs)
  const sinceMs = firstMs - countersRepeatedMs - 3 * everyMs
  const rows = await model.aggregate<StepOfRow>([
    {
      $match: {
        'meta.tenant_id': tenant_id,
        'meta.load_balancer_id': load_balancer_id,
        'meta.route_id': { $in: [null, routeId] },
        time: rowsSince(sinceMs),
      },
    },
    {
      $group: {
        _id: {
          host: '$meta.host_id',
          stay: '$started_at',
          route: '$meta.route_id',
          target: '$meta.target_id',
          step,
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

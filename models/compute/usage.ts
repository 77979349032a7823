import { sampleEveryMs } from '../../lib/host-protocol.ts'
import { records, type SampleDocument } from './samples.ts'
import { type Range, stepsOf } from './steps.ts'

const counters = ['cpu_ms', 'net_rx_bytes', 'net_tx_bytes', 'disk_read_bytes', 'disk_write_bytes'] as const
type Counted = Record<(typeof counters)[number], number>

/** The usage in one time step. */
export interface UsedInStep {
  /** The start of the step. */
  time: Date
  /** The mean over the rows of the step; the sum of these means over replicas. */
  memory_bytes: number
  /** Null if no run has a start or an earlier row to count from. */
  counted: (Counted & { over_ms: number }) | null
}

/** The last counters of one run in one step. Counters never decrease within a run. */
interface StepOfRun extends Counted {
  _id: { replica?: string; run: Date; step: Date }
  time: Date
  rows: number
  /** The sum over the rows. */
  memory_bytes: number
}

/**
 * The usage of an instance, or of all replicas of an application, in each step that overlaps `fromMs` to `toMs`. Steps are whole and aligned to the clock. A
 * step without rows is left out; the first step after it includes its usage.
 */
export async function usageOf(
  { tenant_id, instance_id }: Pick<SampleDocument['meta'], 'tenant_id' | 'instance_id'>,
  record: keyof typeof records,
  range: Range,
): Promise<UsedInStep[]> {
  const { model, everyMs } = records[record]
  const { firstMs, step, rowsSince } = stepsOf(range, everyMs)
  // The first step subtracts a row from before it.
  const sinceMs = firstMs - 3 * everyMs
  const time = rowsSince(sinceMs)
  const rows = await model.aggregate<StepOfRun>([
    { $match: { 'meta.tenant_id': tenant_id, 'meta.instance_id': instance_id, time } },
    {
      $group: {
        _id: { replica: '$meta.replica', run: '$started_at', step },
        time: { $max: '$time' },
        rows: { $sum: 1 },
        memory_bytes: { $sum: '$memory_bytes' },
        ...Object.fromEntries(counters.map((name) => [name, { $max: `$${name}` }])),
      },
    },
    { $sort: { '_id.run': 1, '_id.step': 1 } },
  ])
  const replicas = [...Map.groupBy(rows, ({ _id }) => _id.replica).values()]
  const all = replicas.flatMap((of) => inSteps(of, sinceMs))
  return [...Map.groupBy(all, (used) => used.time.getTime())]
    .toSorted(([a], [b]) => a - b)
    .flatMap(([beganMs, used]) => (beganMs >= firstMs ? used.reduce(besideEachOther) : []))
}

/** The usage of two replicas in one step. */
function besideEachOther(one: UsedInStep, other: UsedInStep): UsedInStep {
  const [a, b] = [one.counted, other.counted]
  const memory_bytes = one.memory_bytes + other.memory_bytes
  if (!a || !b) return { time: one.time, memory_bytes, counted: a ?? b }
  const over_ms = Math.max(a.over_ms, b.over_ms)
  const cpu_ms = (a.cpu_ms / a.over_ms + b.cpu_ms / b.over_ms) * over_ms
  return { time: one.time, memory_bytes, counted: { ...together(a, b), over_ms, cpu_ms } }
}

/** Turns the counters at the end of each step into the usage within it. A step may have several runs. */
function inSteps(rows: StepOfRun[], sinceMs: number): UsedInStep[] {
  const steps = Map.groupBy(countedBy(rows, sinceMs), ({ row }) => row._id.step.getTime())
  return [...steps].map(([step, parts]): UsedInStep => {
    const rowCount = sum(parts.map(({ row }) => row.rows))
    const known = parts.flatMap(({ counted }) => counted ?? [])
    return {
      time: new Date(step),
      memory_bytes: sum(parts.map(({ row }) => row.memory_bytes)) / rowCount,
      counted: known.length ? known.reduce(together) : null,
    }
  })
}

function countedBy(rows: StepOfRun[], sinceMs: number) {
  return rows.map((row, i) => {
    const { run } = row._id
    const before = rows[i - 1]
    const nothing = { time: run, ...mapCounters(() => 0) }
    const begun = run.getTime() >= sinceMs ? nothing : null
    const base = before?._id.run.getTime() === run.getTime() ? before : begun
    if (!base) return { row, counted: null }
    // A run's counters begin with what its start has cost: over the first few ms that would be a peak.
    const atLeastMs = base === nothing ? sampleEveryMs : 1
    const over_ms = Math.max(atLeastMs, row.time.getTime() - base.time.getTime())
    return { row, counted: { over_ms, ...mapCounters((name) => Math.max(0, row[name] - base[name])) } }
  })
}

type CountedInStep = NonNullable<UsedInStep['counted']>
const together = (a: CountedInStep, b: CountedInStep): CountedInStep => ({
  over_ms: a.over_ms + b.over_ms,
  ...mapCounters((name) => a[name] + b[name]),
})

const mapCounters = (of: (name: keyof Counted) => number): Counted =>
  Object.fromEntries(counters.map((name) => [name, of(name)])) as Counted

const sum = (figures: number[]): number => figures.reduce((all, figure) => all + figure, 0)

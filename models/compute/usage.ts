import { records, type SampleDocument } from './samples.ts'
import { type Range, stepsOf } from './steps.ts'

const counters = ['cpu_ms', 'net_rx_bytes', 'net_tx_bytes', 'disk_read_bytes', 'disk_write_bytes'] as const
type Counted = Record<(typeof counters)[number], number>

/** The usage in one time step. */
export interface UsedInStep {
  /** The start of the step. */
  time: Date
  /** The mean over the rows of the step. */
  memory_bytes: number
  /** Null if no run has a start or an earlier row to count from. */
  counted: (Counted & { over_ms: number }) | null
}

/** The last counters of one run in one step. Counters never decrease within a run. */
interface StepOfRun extends Counted {
  _id: { run: Date; step: Date }
  time: Date
  rows: number
  /** The sum over the rows. */
  memory_bytes: number
}

/**
 * The usage of an instance in each step that overlaps `fromMs` to `toMs`. Steps are whole and aligned to the clock. A
 * step without rows is left out; the first step after it includes its usage.
 */
export async function usageOf(
  { tenant_id, instance_id }: SampleDocument['meta'],
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
        _id: { run: '$started_at', step },
        time: { $max: '$time' },
        rows: { $sum: 1 },
        memory_bytes: { $sum: '$memory_bytes' },
        ...Object.fromEntries(counters.map((name) => [name, { $max: `$${name}` }])),
      },
    },
    { $sort: { '_id.run': 1, '_id.step': 1 } },
  ])
  return inSteps(rows, sinceMs).filter((used) => used.time.getTime() >= firstMs)
}

/** Turns the counters at the end of each step into the usage within it. A step may have several runs. */
function inSteps(rows: StepOfRun[], sinceMs: number): UsedInStep[] {
  const steps = Map.groupBy(countedBy(rows, sinceMs), ({ row }) => row._id.step.getTime())
  const all = [...steps].map(([step, parts]): UsedInStep => {
    const rowCount = sum(parts.map(({ row }) => row.rows))
    const known = parts.flatMap(({ counted }) => counted ?? [])
    return {
      time: new Date(step),
      memory_bytes: sum(parts.map(({ row }) => row.memory_bytes)) / rowCount,
      counted: known.length ? known.reduce(together) : null,
    }
  })
  return all.toSorted((a, b) => a.time.getTime() - b.time.getTime())
}

function countedBy(rows: StepOfRun[], sinceMs: number) {
  return rows.map((row, i) => {
    const { run } = row._id
    const before = rows[i - 1]
    const nothing = { time: run, ...mapCounters(() => 0) }
    const begun = run.getTime() >= sinceMs ? nothing : null
    const base = before?._id.run.getTime() === run.getTime() ? before : begun
    if (!base) return { row, counted: null }
    const over_ms = Math.max(1, row.time.getTime() - base.time.getTime())
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

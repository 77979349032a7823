import { z } from 'zod'
import { InvalidInput } from '../../../lib/problem.ts'
import { records } from '../../../models/compute/samples.ts'
import { type UsedInStep, usageOf } from '../../../models/compute/usage.ts'
import { Timestamp, time } from '../../fields.ts'

// An instance's resource usage, as series for charts.

export const secondMs = 1_000
const minuteMs = 60 * secondMs
const hourMs = 60 * minuteMs
const mostPoints = 1_500
/** The default of `step_sec` is the finest of these steps that gives at most this many points, as a chart shows. */
const usualPoints = 300
const usualStepsSec = [10, 30, 60, 300, 900, 3_600, 7_200, 86_400]
/** Longer ranges use the per-minute record if the step allows it, which reads a sixth of the rows. */
const longestOfRawMs = 6 * hourMs

const Instant = z.iso.datetime({ offset: true })
export const MetricsQuery = z.strictObject({
  from: Instant.optional().describe('Default: one hour before `to`'),
  to: Instant.optional().describe('Default: now'),
  step_sec: z.coerce
    .number()
    .int()
    .min(10)
    .max(86_400)
    .multipleOf(10)
    .optional()
    .describe(
      `A multiple of 10 s within the last 24 h, of 60 s within the last 15 days; at most ${mostPoints} points. Default: chosen by the range`,
    ),
})

const series = [
  ['cpu_cores_used', 'cores', ({ counted }) => counted && round(counted.cpu_ms / counted.over_ms, 4)],
  ['memory_mib_used', 'MiB', ({ memory_bytes }) => round(memory_bytes / 1024 ** 2, 2)],
  ['net_rx_bytes', 'bytes', ({ counted }) => counted && counted.net_rx_bytes],
  ['net_tx_bytes', 'bytes', ({ counted }) => counted && counted.net_tx_bytes],
  ['disk_read_bytes', 'bytes', ({ counted }) => counted && counted.disk_read_bytes],
  ['disk_write_bytes', 'bytes', ({ counted }) => counted && counted.disk_write_bytes],
] as const satisfies [string, string, (used: UsedInStep) => number | null][]

export const usageNames = series.map(([name]) => name)
export const usageUnits = ['cores', 'MiB', 'bytes'] as const

export const Points = z.array(z.tuple([Timestamp, z.number().nonnegative()]))

export const MetricsView = z
  .strictObject({
    step_sec: z.int(),
    series: z.array(
      z.strictObject({
        name: z.enum(usageNames),
        unit: z.enum(usageUnits),
        points: Points.describe(
          'Pairs of a step’s start and its value: the mean for cores and memory, the sum for bytes. Restarts do not distort it. A step without measurements has no point; the last step may be incomplete',
        ),
      }),
    ),
  })
  .meta({ id: 'Metrics' })

/** Reads the metrics. Throws InvalidInput for a range or step without a record. */
export async function metricsOf(
  instance: { tenant_id: string; instance_id: string },
  query: z.output<typeof MetricsQuery>,
): Promise<z.output<typeof MetricsView>> {
  const { record, ...range } = plan(query, Date.now())
  const steps = await usageOf(instance, record, range)
  return {
    step_sec: range.stepMs / secondMs,
    series: series.map(([name, unit, valueIn]) => ({
      name,
      unit,
      points: steps.flatMap((used): [string, number][] => {
        const value = valueIn(used)
        return value === null ? [] : [[time(used.time), value]]
      }),
    })),
  }
}

/** The record to read and the steps. Throws InvalidInput. */
export function plan({ from, to, step_sec }: z.output<typeof MetricsQuery>, nowMs: number) {
  const toMs = to ? Date.parse(to) : nowMs
  const fromMs = from ? Date.parse(from) : toMs - hourMs
  if (fromMs >= toMs) throw wrong('from', to ? 'must be before to' : 'must be in the past')
  const rangeMs = toMs - fromMs
  // Allows a minute of clock difference for a client that asks for exactly a day.
  const isRecent = nowMs - fromMs <= records.raw.keptSec * secondMs + minuteMs
  const usual = usualStepsSec.filter((step) => isRecent || step >= 60)
  const suiting = usual.find((step) => rangeMs / secondMs / step <= usualPoints)
  const stepMs = (step_sec ?? suiting ?? 86_400) * secondMs
  if (rangeMs / stepMs > mostPoints)
    throw step_sec === undefined
      ? wrong('from', `must be at most ${mostPoints} days before ${to ? 'to' : 'now'}`)
      : wrong('step_sec', `must give at most ${mostPoints} points`)
  const isOfMinutes = stepMs % minuteMs === 0
  if (!isRecent && !isOfMinutes)
    throw wrong('step_sec', 'must be a multiple of 60 for samples older than 24 h')
  const record = isRecent && (!isOfMinutes || rangeMs <= longestOfRawMs) ? 'raw' : 'byMinute'
  return { record, fromMs, toMs, stepMs } as const
}

const wrong = (parameter: string, message: string): InvalidInput =>
  new InvalidInput(400, [{ pointer: `/${parameter}`, message }])

export const round = (value: number, digits: number): number => Number(value.toFixed(digits))

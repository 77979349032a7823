import { z } from 'zod'
import { type ToldInStep, toldBy } from '../../models/deploy/database-samples.ts'
import {
  metricsOf,
  type MetricsQuery,
  plan,
  Points,
  round,
  usageNames,
  usageUnits,
} from '../compute/observation/metrics.ts'
import { time } from '../fields.ts'

// What a database's container uses and what its engine tells, as series for charts.

const series = [
  ['connections', 'connections', ({ connections }) => connections],
  ['connections_max', 'connections', ({ connections_max }) => connections_max],
  ['data_bytes', 'bytes', ({ data_bytes }) => data_bytes],
  ['keys', 'keys', ({ keys }) => keys],
  ['queries', 'queries', ({ queries }) => queries],
  ['slow_queries', 'queries', ({ slow_queries }) => slow_queries],
  ['cache_hit_ratio', 'ratio', (told) => hitRatio(told)],
] as const satisfies [string, string, (told: ToldInStep['values']) => number | undefined][]

export const DatabaseMetricsView = z
  .strictObject({
    step_sec: z.int(),
    series: z.array(
      z.strictObject({
        name: z.enum([...usageNames, ...series.map(([name]) => name)]),
        unit: z.enum([...usageUnits, 'connections', 'keys', 'queries', 'ratio']),
        points: Points.describe(
          'Pairs of a step’s start and its value. The container’s metrics are those of an instance. The engine is asked every minute, or every five minutes for MongoDB and ClickHouse: the mean for connections, data and keys, the sum for queries, the share of reads for the ratio. A metric that the engine does not report has no points',
        ),
      }),
    ),
  })
  .meta({ id: 'DatabaseMetrics' })

/** Reads the metrics. Throws InvalidInput for a range or step without a record. */
export async function databaseMetricsOf(
  { tenant_id, database_id }: { tenant_id: string; database_id: string },
  query: z.output<typeof MetricsQuery>,
): Promise<z.output<typeof DatabaseMetricsView>> {
  const { record: _, ...range } = plan(query, Date.now())
  const used = await metricsOf({ tenant_id, instance_id: database_id }, query)
  const steps = await toldBy({ tenant_id, database_id }, range)
  const told = series.map(([name, unit, valueIn]) => ({
    name,
    unit,
    points: steps.flatMap((step): [string, number][] => {
      const value = valueIn(step.values)
      return value === undefined ? [] : [[time(step.time), round(value, unit === 'ratio' ? 4 : 2)]]
    }),
  }))
  return { step_sec: used.step_sec, series: [...used.series, ...told] }
}

function hitRatio({ cache_hits = 0, cache_misses = 0 }: ToldInStep['values']): number | undefined {
  const reads = cache_hits + cache_misses
  return reads > 0 ? cache_hits / reads : undefined
}

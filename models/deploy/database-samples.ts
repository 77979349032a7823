import mongoose, { Schema } from 'mongoose'
import {
  databaseCounters,
  databaseGauges,
  type DatabaseMetric,
  databaseMetrics,
  type DatabaseSample,
} from '../../lib/deploy-protocol.ts'
import { type Range, stepsOf } from '../compute/steps.ts'
import { schemaOptions } from '../schemas.ts'
import { tenantScoped } from '../tenant-scope.ts'

type Values = Partial<Record<DatabaseMetric, number>>

/** What a database's engine told at a moment. As for instances, rows hold counters and not differences. */
interface DatabaseSampleDocument extends Values {
  meta: { tenant_id: string; database_id: string }
  time: Date
}

const minuteMs = 60_000
const keptSec = 15 * 86_400
/** Engines are asked once in five minutes or more often. */
const seldomMs = 5 * minuteMs

const schema = new Schema<DatabaseSampleDocument>(
  {
    meta: {
      tenant_id: { type: String, required: true },
      database_id: { type: String, required: true },
    },
    time: { type: Date, required: true },
    ...Object.fromEntries(databaseMetrics.map((name) => [name, { type: Number }])),
  },
  {
    ...schemaOptions,
    collection: 'database_samples',
    timeseries: { timeField: 'time', metaField: 'meta', granularity: 'minutes' },
    expireAfterSeconds: keptSec,
  },
)
tenantScoped(schema)
schema.index({ 'meta.tenant_id': 1, 'meta.database_id': 1, time: 1 })
const Sample = mongoose.model<DatabaseSampleDocument>('DatabaseSample', schema)

/** Stores what engines told, but of those databases that `tenantOf` does not know. */
export async function storeDatabaseSamples(
  samples: DatabaseSample[],
  tenantOf: (sample: DatabaseSample) => string | null,
): Promise<void> {
  const rows = samples.flatMap((sample): DatabaseSampleDocument[] => {
    const tenant_id = tenantOf(sample)
    if (tenant_id === null) return []
    return [{ meta: { tenant_id, database_id: sample.id }, time: new Date(sample.time), ...sample.values }]
  })
  if (rows.length) await Sample.collection.insertMany(rows, { ordered: false })
}

/** What an engine told in one time step. */
export interface ToldInStep {
  time: Date
  /** Gauges: the mean. Counters: how much was added. Without a measurement there is no value. */
  values: Values
}

/** What the engine of a database told in each step that overlaps `fromMs` to `toMs`. */
export async function toldBy(
  { tenant_id, database_id }: DatabaseSampleDocument['meta'],
  range: Range,
): Promise<ToldInStep[]> {
  const { firstMs, step, rowsSince } = stepsOf(range, minuteMs)
  // The first step subtracts a row from before it.
  const time = rowsSince(firstMs - 2 * seldomMs)
  const rows = await Sample.aggregate<Values & { step: Date }>([
    { $match: { 'meta.tenant_id': tenant_id, 'meta.database_id': database_id, time } },
    { $sort: { time: 1 } },
    { $project: { _id: 0, step, ...Object.fromEntries(databaseMetrics.map((name) => [name, 1])) } },
  ])
  const added = rows.map((row, i) => ({ ...row, ...addedSince(rows[i - 1], row) }))
  return [...Map.groupBy(added, (row) => row.step.getTime())].flatMap(([ms, of]) =>
    ms >= firstMs ? [{ time: new Date(ms), values: inStep(of) }] : [],
  )
}

/** How much was added to each counter. One that is less than before began at 0 again: its engine has started anew. */
function addedSince(before: Values | undefined, row: Values): Values {
  return valuesOf(databaseCounters, (name) => {
    const [from, to] = [before?.[name], row[name]]
    if (from === undefined || to === undefined) return undefined
    return to < from ? to : to - from
  })
}

function inStep(rows: Values[]): Values {
  const known = (name: DatabaseMetric): number[] => rows.flatMap((row) => row[name] ?? [])
  return {
    ...valuesOf(databaseGauges, (name) => meanOf(known(name))),
    ...valuesOf(databaseCounters, (name) => sumOf(known(name))),
  }
}

const sumOf = (figures: number[]): number | undefined =>
  figures.length ? figures.reduce((sum, figure) => sum + figure) : undefined

function meanOf(figures: number[]): number | undefined {
  const sum = sumOf(figures)
  return sum === undefined ? undefined : sum / figures.length
}

const valuesOf = (
  names: readonly DatabaseMetric[],
  of: (name: DatabaseMetric) => number | undefined,
): Values => Object.fromEntries(names.map((name) => [name, of(name)]))

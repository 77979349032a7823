import mongoose, { Schema } from 'mongoose'
import type { LoadBalancerSample, RouteCounters } from '../../lib/load-balancer-protocol.ts'
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

import mongoose, { Schema } from 'mongoose'
import { type InstanceSample, sampleEveryMs } from '../../lib/host-protocol.ts'
import { schemaOptions } from '../schemas.ts'
import { tenantScoped } from '../tenant-scope.ts'
import { ownersOn } from './reservations.ts'

/**
 * The usage counters of an instance at a moment. Rows hold counters, not differences: a missing or duplicate row, as
 * after a kill, changes no sum. The record by minute holds a subset of the same rows.
 */
export interface SampleDocument {
  /** An application's samples have its id, and tell its replicas apart. */
  meta: { tenant_id: string; instance_id: string; replica?: string }
  time: Date
  /** Identifies the run: the counters start at 0 in each run. */
  started_at: Date
  cpu_ms: number
  memory_bytes: number
  net_rx_bytes: number
  net_tx_bytes: number
  disk_read_bytes: number
  disk_write_bytes: number
}

const daySec = 86_400

/** The two records, with their sampling interval and retention. */
export const records = {
  raw: { model: record('Sample', 'samples', daySec), everyMs: sampleEveryMs, keptSec: daySec },
  byMinute: {
    model: record('MinuteSample', 'samples_by_minute', 15 * daySec),
    everyMs: 60_000,
    keptSec: 15 * daySec,
  },
}

function record(
  name: string,
  collection: string,
  expireAfterSeconds: number,
): mongoose.Model<SampleDocument> {
  const counter = { type: Number, required: true }
  const schema = new Schema<SampleDocument>(
    {
      meta: {
        tenant_id: { type: String, required: true },
        instance_id: { type: String, required: true },
        replica: { type: String },
      },
      time: { type: Date, required: true },
      started_at: { type: Date, required: true },
      cpu_ms: counter,
      memory_bytes: counter,
      net_rx_bytes: counter,
      net_tx_bytes: counter,
      disk_read_bytes: counter,
      disk_write_bytes: counter,
    },
    {
      ...schemaOptions,
      collection,
      timeseries: {
        timeField: 'time',
        metaField: 'meta',
        granularity: collection === 'samples' ? 'seconds' : 'minutes',
      },
      expireAfterSeconds,
    },
  )
  tenantScoped(schema)
  schema.index({ 'meta.tenant_id': 1, 'meta.instance_id': 1, time: 1 })
  return mongoose.model<SampleDocument>(name, schema)
}

/** Stores a host's samples of the instances with a reservation on that host. Ignores its samples of other instances. */
export async function recordSamples(hostId: string, samples: InstanceSample[]): Promise<void> {
  const tenants = await ownersOn(
    hostId,
    samples.map(({ id }) => id),
  )
  await storeSamples(samples, ({ id }) => {
    const tenant_id = tenants.get(id)
    return tenant_id === undefined ? null : { tenant_id, instance_id: id }
  })
}

/** The replicas of these applications of which there is a sample since then. */
export async function replicasSampledSince(
  tenant_id: string,
  applicationIds: string[],
  since: Date,
): Promise<Set<string>> {
  const found = await records.raw.model.aggregate<{ _id: string }>([
    {
      $match: {
        'meta.tenant_id': tenant_id,
        'meta.instance_id': { $in: applicationIds },
        time: { $gt: since },
      },
    },
    { $group: { _id: '$meta.replica' } },
  ])
  return new Set(found.map(({ _id }) => _id))
}

/** Stores samples, but those of which `metaOf` knows nothing. */
export async function storeSamples<S extends InstanceSample>(
  samples: S[],
  metaOf: (sample: S) => SampleDocument['meta'] | null,
): Promise<void> {
  const toRow = (sample: S): SampleDocument[] => {
    const meta = metaOf(sample)
    if (!meta) return []
    const { cpu_ms, memory_bytes, net_rx_bytes, net_tx_bytes, disk_read_bytes, disk_write_bytes } = sample
    const network = { net_rx_bytes, net_tx_bytes }
    const used = { cpu_ms, memory_bytes, ...network, disk_read_bytes, disk_write_bytes }
    return [{ meta, time: new Date(sample.time), started_at: new Date(sample.started_at), ...used }]
  }
  const rows = samples.flatMap(toRow)
  const ofMinute = samples.filter(({ by_minute }) => by_minute).flatMap(toRow)
  if (rows.length) await records.raw.model.collection.insertMany(rows, { ordered: false })
  if (ofMinute.length) await records.byMinute.model.collection.insertMany(ofMinute, { ordered: false })
}

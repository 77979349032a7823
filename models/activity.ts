import mongoose, { Schema } from 'mongoose'
import { idField } from './resources.ts'
import { keepFor } from './retention.ts'
import { schemaOptions } from './schemas.ts'
import { tenantScoped } from './tenant-scope.ts'

/** What happened to a resource: its creation, a failed operation, or what no user requested, such as a repair. */
export interface ActivityDocument {
  _id: string
  tenant_id: string
  resource_id: string
  /** Of the last one, if the entry stands for a run of equal events. */
  time: Date
  first_time: Date
  count: number
  kind: string
  message: string
  data: Record<string, unknown>
}

const schema = new Schema<ActivityDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    resource_id: { type: String, required: true },
    time: { type: Date, required: true },
    first_time: { type: Date, required: true },
    count: { type: Number, required: true },
    kind: { type: String, required: true },
    message: { type: String, required: true },
    data: { type: Schema.Types.Mixed, default: {} },
  },
  { ...schemaOptions, collection: 'activity' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, resource_id: 1, time: -1 })
export const Activity = mongoose.model<ActivityDocument>('Activity', schema)

type Event = Omit<ActivityDocument, '_id' | 'time' | 'first_time' | 'count'>

// Longer than the longest pause between two restarts of a container that always ends.
const runPauseMs = 3600_000
const mostEntries = 500

/**
 * Adds an event to the activity feed of a resource. Equal events in a row, an hour apart at most, are one entry with the
 * data of the last one. A feed keeps its newest 500 entries.
 */
export async function noteActivity(event: Event): Promise<void> {
  const { tenant_id, resource_id, kind, message, data } = event
  const time = new Date()
  const feed = { tenant_id, resource_id }
  const last = await Activity.findOne(feed).sort({ time: -1 }).lean()
  if (last?.kind === kind && last.message === message && +time - +last.time < runPauseMs) {
    // In one step, since several processes note events. If the feed goes meanwhile, this is its first entry.
    const joined = await Activity.updateOne(
      { _id: last._id, tenant_id },
      { $set: { data }, $max: { time }, $inc: { count: 1 } },
    )
    if (joined.matchedCount === 1) return
  }
  await Activity.create({ ...event, time, first_time: time, count: 1 })
  await trim(feed)
}

/** Adds the first event of a feed. What has come before it, such as a gap in the output, stays beside it. */
export async function noteFirst(event: Event): Promise<void> {
  const time = new Date()
  await Activity.create([{ ...event, time, first_time: time, count: 1 }])
}

/** Adds an event once, however often a host tells of it by this key. */
export async function noteOnce(key: string, { time, ...event }: Event & { time: Date }): Promise<void> {
  const { upsertedCount } = await Activity.updateOne(
    { _id: key, tenant_id: event.tenant_id },
    { $setOnInsert: { ...event, time, first_time: time, count: 1 } },
    { upsert: true },
  )
  if (upsertedCount > 0) await trim(event)
}

async function trim({ tenant_id, resource_id }: Pick<Event, 'tenant_id' | 'resource_id'>): Promise<void> {
  const feed = { tenant_id, resource_id }
  const beyond = await Activity.find(feed, { _id: 1 }).sort({ time: -1 }).skip(mostEntries).lean()
  if (beyond.length > 0) await Activity.deleteMany({ ...feed, _id: { $in: beyond.map(({ _id }) => _id) } })
}

/** Has MongoDB delete entries after that many days without such an event. Those of a deleted resource go with it. */
export async function keepActivity(days: number): Promise<void> {
  await keepFor(Activity, days, 'time_1')
}

/** Removes the activity feed of a resource that was deleted. */
export async function forgetActivity(tenant_id: string, resource_id: string): Promise<void> {
  await Activity.deleteMany({ tenant_id, resource_id })
}

import mongoose, { Schema } from 'mongoose'
import { idField } from './resources.ts'
import { schemaOptions } from './schemas.ts'
import { tenantScoped } from './tenant-scope.ts'

/** An event on a resource that no user requested, such as a repair by the reconciler. */
export interface ActivityDocument {
  _id: string
  tenant_id: string
  resource_id: string
  time: Date
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
    kind: { type: String, required: true },
    message: { type: String, required: true },
    data: { type: Schema.Types.Mixed, default: {} },
  },
  { ...schemaOptions, collection: 'activity' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, resource_id: 1, time: -1 })
schema.index({ time: 1 }, { expireAfterSeconds: 400 * 86_400 })
export const Activity = mongoose.model<ActivityDocument>('Activity', schema)

/** Adds an event to the activity feed of a resource. */
export async function noteActivity(event: Omit<ActivityDocument, '_id' | 'time'>): Promise<void> {
  await Activity.create({ ...event, time: new Date() })
}

import mongoose, { Schema } from 'mongoose'
import { idField } from '../resources.ts'
import { tenantScoped } from '../tenant-scope.ts'

/** Who did what, to which resource, from where, and how it ended. Never what was in the request. */
export interface AuditEventDocument {
  _id: string
  tenant_id: string
  time: Date
  actor_id: string
  actor_kind: 'user' | 'api_client'
  action: string
  path: string
  address: string
  status: number
  request_id: string
}

const schema = new Schema<AuditEventDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    time: { type: Date, required: true },
    actor_id: { type: String, required: true },
    actor_kind: { type: String, required: true },
    action: { type: String, required: true },
    path: { type: String, required: true },
    address: { type: String, required: true },
    status: { type: Number, required: true },
    request_id: { type: String, required: true },
  },
  { versionKey: false, id: false, collection: 'audit_events' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, time: -1 })
export const AuditEvent = mongoose.model<AuditEventDocument>('AuditEvent', schema)

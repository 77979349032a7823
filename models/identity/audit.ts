import mongoose, { Schema } from 'mongoose'
import { idField } from '../resources.ts'
import { keepFor } from '../retention.ts'
import { schemaOptions } from '../schemas.ts'
import { tenantScoped } from '../tenant-scope.ts'

export const outcomes = ['succeeded', 'refused', 'failed'] as const
export const actorKinds = ['user', 'api_client', 'deploy_server', 'platform'] as const

/** Who did what, to which resource, from where, and the outcome. Never the content of the request. */
export interface AuditEventDocument {
  _id: string
  tenant_id: string
  time: Date
  actor_id: string
  actor_kind: (typeof actorKinds)[number]
  /** The e-mail address, the client's name or the deploy server's login at that time. */
  actor_name: string
  action: string
  resource_kind: string
  resource_id: string | null
  path: string
  address: string
  user_agent: string
  status: number
  outcome: (typeof outcomes)[number]
  problem_code: string | null
  request_id: string
}

const text = { type: String, default: '' } // may be empty, which `required` would refuse
const schema = new Schema<AuditEventDocument>(
  {
    _id: idField,
    tenant_id: { type: String, required: true },
    time: { type: Date, required: true },
    actor_id: { type: String, required: true },
    actor_kind: { type: String, enum: actorKinds, required: true },
    actor_name: text,
    action: { type: String, required: true },
    resource_kind: { type: String, required: true },
    resource_id: { type: String, default: null },
    path: { type: String, required: true },
    address: text,
    user_agent: text,
    status: { type: Number, required: true },
    outcome: { type: String, enum: outcomes, required: true },
    problem_code: { type: String, default: null },
    request_id: { type: String, required: true },
  },
  { ...schemaOptions, collection: 'audit_events' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, time: -1, _id: -1 })
export const AuditEvent = mongoose.model<AuditEventDocument>('AuditEvent', schema)

export async function storeAuditEvent(event: Omit<AuditEventDocument, '_id'>): Promise<void> {
  await AuditEvent.create([event])
}

/** Sets the retention of audit events, existing ones included. Idempotent. */
export const keepAuditEvents = (days: number): Promise<void> => keepFor(AuditEvent, days, 'retention')

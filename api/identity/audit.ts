import { z } from 'zod'
import { actorKinds, AuditEvent, outcomes } from '../../models/identity/audit.ts'
import { Id, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'

const AuditEventView = z
  .strictObject({
    id: Id,
    tenant_id: Id,
    time: Timestamp,
    actor_id: z.string(),
    actor_kind: z.enum(actorKinds),
    actor_name: z.string().describe('E-mail address or name at that time'),
    action: z
      .string()
      .describe('The method and path; for an operation that another operation began, its verb and kind'),
    resource_kind: z.string(),
    resource_id: z.string().nullable(),
    path: z.string(),
    address: z.string(),
    user_agent: z.string(),
    status: z.int(),
    outcome: z.enum(outcomes),
    problem_code: z.string().nullable(),
    request_id: z.string(),
  })
  .meta({ id: 'AuditEvent' })

export const auditEvents = [
  list({
    path: '/api/v1/audit-events',
    permission: 'audit:read',
    summary: 'List audit events: changes, reads of secrets, and refused attempts',
    model: AuditEvent,
    view: AuditEventView,
    toView: ({ _id, ...event }): z.output<typeof AuditEventView> => ({
      id: _id,
      ...event,
      time: time(event.time),
    }),
    sortBy: 'time',
    scope: ({ tenant_id }) => ({ tenant_id }),
  }),
]

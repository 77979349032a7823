import { z } from 'zod'
import {
  acceptTenantDeletion,
  createTenant,
  renameTenant,
  setLimits,
  Tenant,
  type TenantDocument,
  tenantOf,
  tenantStates,
} from '../../models/identity/tenants.ts'
import { accepting } from '../accept.ts'
import { byId, Id, Timestamp, time, NewPassword, PlainText } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'
import { limitFields, limitsOf, LimitsView, toLimitsView } from './limits.ts'

const view = {
  id: Id,
  name: z.string(),
  status: z.enum(tenantStates.all),
  status_reason: z.string().nullable().describe('Why the deletion failed'),
  operation_id: Id.nullable().describe('The open operation'),
  limits: z.strictObject(limitFields),
  usage: z
    .strictObject({ cpu_milli: z.int(), memory_mib: z.int(), disk_gib: z.int() })
    .describe('What the tenant’s instances and disks have reserved'),
  created_at: Timestamp,
  updated_at: Timestamp,
}
const TenantView = z.strictObject(view).meta({ id: 'Tenant' })
const WithOwner = z
  .strictObject({
    ...view,
    owner: z.strictObject({
      id: Id,
      email: z.string(),
      name: z.string(),
      password: z
        .string()
        .nullable()
        .describe('The generated password, shown once; null: the request had one'),
    }),
  })
  .meta({ id: 'TenantWithOwner' })

const toView = (tenant: TenantDocument): z.output<typeof TenantView> => ({
  id: tenant._id,
  name: tenant.name,
  status: tenant.status,
  status_reason: tenant.status_reason,
  operation_id: tenant.operation_id,
  limits: limitsOf(tenant),
  usage: {
    cpu_milli: tenant.usage.cpu_milli,
    memory_mib: tenant.usage.memory_mib,
    disk_gib: tenant.usage.disk_gib,
  },
  created_at: time(tenant.created_at),
  updated_at: time(tenant.updated_at),
})

const TenantName = PlainText.trim().min(1).max(100)
const SomeLimits = z.strictObject(limitFields).partial()

export const tenants = [
  list({
    path: '/api/v1/platform/tenants',
    permission: 'platform:tenants',
    summary: 'List tenants',
    model: Tenant,
    view: TenantView,
    toView,
    scope: () => ({}), // all tenants, for operators
  }),

  operation({
    method: 'POST',
    path: '/api/v1/platform/tenants',
    permission: 'platform:tenants',
    summary: 'Create a tenant and its first owner',
    body: z.strictObject({
      name: TenantName,
      owner: z.strictObject({
        email: z.email().max(254),
        name: PlainText.max(200).optional(),
        password: NewPassword.optional().describe('Default: a generated password'),
      }),
      limits: SomeLimits.optional().describe('Limits that are left out have the platform’s defaults'),
    }),
    responses: { 201: WithOwner },
    handle: async ({ body }) => {
      const { tenant, owner, password } = await createTenant(body, body.owner)
      return {
        location: `/api/v1/platform/tenants/${tenant._id}`,
        body: {
          ...toView(tenant),
          owner: { id: owner._id, email: owner.email, name: owner.name, password },
        },
      }
    },
  }),

  operation({
    method: 'GET',
    path: '/api/v1/platform/tenants/{id}',
    permission: 'platform:tenants',
    summary: 'Get a tenant',
    params: byId,
    responses: { 200: TenantView },
    handle: async ({ params }) => toView(await tenantOf(params.id)),
  }),

  operation({
    method: 'PATCH',
    path: '/api/v1/platform/tenants/{id}',
    permission: 'platform:tenants',
    summary: 'Rename a tenant',
    params: byId,
    body: z.strictObject({ name: TenantName }),
    responses: { 200: TenantView },
    handle: async ({ params, body }) => toView(await renameTenant(params.id, body.name)),
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/platform/tenants/{id}',
    permission: 'platform:tenants',
    summary: 'Delete a tenant and everything it owns; its users lose access at once',
    params: byId,
    responses: { 202: TenantView },
    handle: ({ caller, params }) => accepting(caller, toView, (by) => acceptTenantDeletion(by, params.id)),
  }),

  operation({
    method: 'PUT',
    path: '/api/v1/platform/tenants/{id}/limits',
    permission: 'platform:limits',
    summary: 'Change a tenant’s limits; lowering one below current usage only blocks growth',
    params: byId,
    body: SomeLimits,
    responses: { 200: LimitsView },
    handle: async ({ params, body }) => toLimitsView(await setLimits(params.id, body)),
  }),
]

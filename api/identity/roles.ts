import { z } from 'zod'
import { NotFound } from '../../lib/problem.ts'
import {
  changeRole,
  createRole,
  deleteRole,
  Role,
  type RoleDocument,
  roleNamed,
  tenantPermissions,
} from '../../models/identity/roles.ts'
import { everyTenant } from '../../models/tenant-scope.ts'
import { Id, Name, Timestamp, time } from '../fields.ts'
import { list } from '../list.ts'
import { operation } from '../operation.ts'

const RoleView = z
  .strictObject({
    tenant_id: Id.nullable().describe('Null for built-in roles, which every tenant has'),
    name: z.string(),
    description: z.string(),
    built_in: z.boolean().describe('Built-in roles cannot be changed or deleted'),
    permissions: z.array(z.string()),
    created_at: Timestamp,
    updated_at: Timestamp,
  })
  .meta({ id: 'Role' })

const toView = (role: RoleDocument): z.output<typeof RoleView> => ({
  tenant_id: role.tenant_id,
  name: role.name,
  description: role.description,
  built_in: role.built_in,
  permissions: role.permissions,
  created_at: time(role.created_at),
  updated_at: time(role.updated_at),
})

const Permission = z.enum(tenantPermissions).meta({ id: 'Permission' })
const Permissions = z.array(Permission).max(tenantPermissions.length)
const Description = z.string().max(1000)
const byName = z.strictObject({ name: Name })

export const roles = [
  list({
    path: '/api/v1/roles',
    permission: 'roles:read',
    summary: 'List roles, built-in ones included',
    model: Role,
    view: RoleView,
    toView,
    scope: (caller) => ({ tenant_id: { $in: [null, caller.tenant_id] } }),
    options: everyTenant, // the built-in roles belong to no tenant
  }),

  operation({
    method: 'POST',
    path: '/api/v1/roles',
    permission: 'roles:create',
    summary: 'Create a role; the caller must hold every permission in it',
    body: z.strictObject({
      name: Name,
      description: Description.default(''),
      permissions: Permissions.default([]),
    }),
    responses: { 201: RoleView },
    handle: async ({ caller, body }) => {
      const role = await createRole(caller, body)
      return { location: `/api/v1/roles/${role.name}`, body: toView(role) }
    },
  }),

  operation({
    method: 'GET',
    path: '/api/v1/roles/{name}',
    permission: 'roles:read',
    summary: 'Get a role by name',
    params: byName,
    responses: { 200: RoleView },
    handle: async ({ caller, params }) => toView(await roleNamed(caller.tenant_id, params.name)),
  }),

  operation({
    method: 'PUT',
    path: '/api/v1/roles/{name}',
    permission: 'roles:update',
    summary: 'Update a role; the change takes effect on its users’ next request',
    params: byName,
    body: z.strictObject({ description: Description.optional(), permissions: Permissions.optional() }),
    responses: { 200: RoleView },
    handle: async ({ caller, params, body: { description, permissions } }) =>
      toView(
        await changeRole(caller, params.name, {
          ...(description === undefined ? {} : { description }),
          ...(permissions === undefined ? {} : { permissionsFrom: () => permissions }),
        }),
      ),
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/roles/{name}',
    permission: 'roles:delete',
    summary: 'Delete a role that no user has',
    params: byName,
    responses: { 204: null },
    handle: async ({ caller, params }) => deleteRole(caller, params.name),
  }),

  operation({
    method: 'POST',
    path: '/api/v1/roles/{name}/permissions',
    permission: 'roles:update',
    summary: 'Grant a permission to a role',
    params: byName,
    body: z.strictObject({ permission: Permission }),
    responses: { 200: RoleView },
    handle: async ({ caller, params, body }) =>
      toView(
        await changeRole(caller, params.name, {
          permissionsFrom: (present) => [...present, body.permission],
        }),
      ),
  }),

  operation({
    method: 'DELETE',
    path: '/api/v1/roles/{name}/permissions/{permission}',
    permission: 'roles:update',
    summary: 'Revoke a permission from a role',
    params: z.strictObject({ name: Name, permission: z.string() }),
    responses: { 204: null },
    handle: async ({ caller, params }) => {
      await changeRole(caller, params.name, {
        permissionsFrom: (present) => {
          if (!present.includes(params.permission)) throw new NotFound('permission of this role')
          return present.filter((permission) => permission !== params.permission)
        },
      })
    },
  }),
]

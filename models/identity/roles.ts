import mongoose, { Schema } from 'mongoose'
import { NameTaken, NotFound, Problem } from '../../lib/problem.ts'
import { isDuplicateKey } from '../database.ts'
import { documentOptions } from '../resources.ts'
import { everyTenant, tenantScoped } from '../tenant-scope.ts'
import { changeGrants, mustHold } from './grants.ts'
import { copyRole } from './sessions.ts'
import { User } from './users.ts'

/** The rights of tenants' roles. `<resource>:<action>`; operators' begin with `platform:`. */
const resources = [
  'api_clients',
  'users',
  'roles',
  'audit',
  'operations',
  'limits',
  'containers',
  'microvms',
  'vms',
  'registry_credentials',
  'disks',
  'vpcs',
  'subnets',
  'load_balancers',
  'certificates',
  'deploy_servers',
  'backup_targets',
  'webhooks',
  'connectors',
  'workspaces',
  'agent_sessions',
  'teams',
  'workflows',
  'rag',
  'tools',
] as const
const actions = ['read', 'create', 'update', 'delete'] as const
const special = [
  'disks:restore',
  'deploy_servers:manage',
  'deploy_servers:credentials',
  'containers:console',
  'microvms:console',
  'vms:console',
  'containers:secrets',
  'microvms:secrets',
  'vms:secrets',
  'agent_sessions:message',
  'teams:message',
  'workflows:run',
  'workflows:publish',
  'connectors:use',
  'llm_usage:read',
] as const
export const platformPermissions = [
  'platform:tenants',
  'platform:hosts',
  'platform:images',
  'platform:limits',
  'platform:operations',
] as const

export type TenantPermission =
  | `${(typeof resources)[number]}:${(typeof actions)[number]}`
  | (typeof special)[number]
export type Permission = TenantPermission | (typeof platformPermissions)[number]

export const tenantPermissions: TenantPermission[] = [
  ...resources.flatMap((resource) => actions.map((action) => `${resource}:${action}` as const)),
  ...special,
]

const identity = /^(api_clients|users|roles|audit):/
const builtIn: Record<string, Permission[]> = {
  owner: tenantPermissions,
  admin: tenantPermissions.filter((permission) => !/^(users|roles):delete$/.test(permission)),
  developer: tenantPermissions.filter((permission) => !identity.test(permission)),
  viewer: tenantPermissions.filter((permission) => permission.endsWith(':read')),
  /** Runs the platform. Given by setup and by operators only, never by a tenant. */
  operator: [...platformPermissions, 'operations:read'], // to follow the operations that they start
}

const isBuiltIn = (name: string): boolean => Object.hasOwn(builtIn, name)
/** The built-in roles of every tenant, which no tenant can change. */
export const builtInRoles = ['owner', 'admin', 'developer', 'viewer'] as const
/** The platform's own role. No tenant's list shows it, and no tenant can grant it. */
export const operatorRole = 'operator'

/** A role of a tenant, or a built-in role, which is stored for lists only. */
export interface RoleDocument {
  /** `<tenant>:<name>`: a user's roles are found by id. */
  _id: string
  /** Null for the built-in roles, which all tenants share. */
  tenant_id: string | null
  name: string
  description: string
  built_in: boolean
  permissions: string[]
  /** Counts the logins of its users. Each login writes it, and so conflicts with a concurrent change of the role. */
  logins: number
  created_at: Date
  updated_at: Date
}

const schema = new Schema<RoleDocument>(
  {
    _id: { type: String, required: true },
    tenant_id: { type: String, default: null },
    name: { type: String, required: true },
    description: { type: String, default: '' },
    built_in: { type: Boolean, default: false },
    permissions: { type: [String], default: [] },
    logins: { type: Number, default: 0 },
  },
  { ...documentOptions, collection: 'roles' },
)
tenantScoped(schema)
schema.index({ tenant_id: 1, created_at: -1 })
export const Role = mongoose.model<RoleDocument>('Role', schema)

const idOf = (tenantId: string, name: string): string => `${tenantId}:${name}`

/** Stores the built-in roles for lists. Setup calls this at each start, since a release may change them. */
export async function ensureBuiltInRoles(): Promise<void> {
  for (const name of builtInRoles) {
    const fields = { tenant_id: null, name, built_in: true, permissions: builtIn[name]?.toSorted() ?? [] }
    await Role.updateOne({ _id: idOf('', name) }, { $set: fields }, { upsert: true }).setOptions(everyTenant)
  }
}

/** The tenant's role with this name. Throws NotFound, also for the operator role. */
export async function roleNamed(tenantId: string, name: string): Promise<RoleDocument> {
  const _id = { $in: [idOf(tenantId, name), idOf('', name)] }
  const role = await Role.findOne({ _id }).setOptions(everyTenant).lean()
  if (!role) throw new NotFound('role')
  return role
}

interface Grantor {
  tenant_id: string
  permissions: ReadonlySet<Permission>
}

/** Throws NameTaken, also for the names of built-in roles, and GrantDenied. */
export async function createRole(
  by: Grantor,
  role: { name: string; description: string; permissions: TenantPermission[] },
): Promise<RoleDocument> {
  mustHold(by.permissions, role.permissions)
  if (isBuiltIn(role.name)) throw new NameTaken('role', role.name)
  const { tenant_id } = by
  try {
    const permissions = sorted(role.permissions)
    const saved = await new Role({ ...role, permissions, _id: idOf(tenant_id, role.name), tenant_id }).save()
    return saved.toObject()
  } catch (error) {
    if (isDuplicateKey(error)) throw new NameTaken('role', role.name)
    throw error
  }
}

/**
 * Changes a role. `permissionsFrom` maps the present permissions to the new ones. The caller must hold all permissions
 * of the role, before and after. Throws NotFound, GrantDenied, and `built_in_role`.
 */
export function changeRole(
  by: Grantor,
  name: string,
  change: { description?: string; permissionsFrom?: (present: string[]) => string[] },
): Promise<RoleDocument> {
  return changeGrants(by.tenant_id, async () => {
    const role = await changeable(by, name)
    const permissions = sorted(change.permissionsFrom?.(role.permissions) ?? role.permissions)
    mustHold(by.permissions, permissions)
    const description = change.description ?? role.description
    const changed = await Role.findOneAndUpdate(
      { _id: role._id, tenant_id: by.tenant_id },
      { $set: { permissions, description } },
      { returnDocument: 'after' },
    ).lean()
    if (!changed) throw new NotFound('role')
    await copyRole(changed)
    return changed
  })
}

/** Throws as `changeRole`, and `role_in_use` while users have the role: they would silently lose permissions. */
export function deleteRole(by: Grantor, name: string): Promise<void> {
  return changeGrants(by.tenant_id, async () => {
    const role = await changeable(by, name)
    const users = await User.countDocuments({ tenant_id: by.tenant_id, roles: name })
    if (users) {
      throw new Problem(409, 'role_in_use', 'The role is in use', `${users} users have the role ${name}`, {
        extensions: { users },
      })
    }
    await Role.deleteOne({ _id: role._id, tenant_id: by.tenant_id })
  })
}

async function changeable(by: Grantor, name: string): Promise<RoleDocument> {
  const role = await roleNamed(by.tenant_id, name)
  if (role.built_in) {
    throw new Problem(409, 'built_in_role', 'A built-in role cannot be changed', `${name} is built in`)
  }
  mustHold(by.permissions, role.permissions)
  return role
}

const sorted = (permissions: string[]): string[] => [...new Set(permissions)].toSorted()

/** The tenant's own roles among these names. */
export const customRolesNamed = (tenant_id: string, names: string[]): Promise<RoleDocument[]> =>
  Role.find({ tenant_id, _id: { $in: names.map((name) => idOf(tenant_id, name)) } }).lean()

/**
 * As `customRolesNamed`, and locks the roles until the transaction ends by writing to them, like `holdUser`. Makes no
 * query if all roles are built in.
 */
export async function holdOwnRoles(tenant_id: string, names: string[]): Promise<RoleDocument[]> {
  const own = names.filter((name) => !isBuiltIn(name))
  if (own.length === 0) return []
  const _id = { $in: own.map((name) => idOf(tenant_id, name)) }
  await Role.updateMany({ tenant_id, _id }, { $inc: { logins: 1 } }, { timestamps: false })
  return Role.find({ tenant_id, _id }).lean()
}

const known = new Map<string, ReadonlySet<Permission>>()
const grantable = new Set<string>(tenantPermissions)
const isGrantable = (permission: string): permission is TenantPermission => grantable.has(permission)

/** The permissions of a user with these roles. An unknown role grants nothing. */
export function permissionsOf(
  roles: string[],
  custom: Pick<RoleDocument, 'permissions'>[] = [],
): ReadonlySet<Permission> {
  const ours = roles.filter(isBuiltIn)
  const key = ours.join()
  const permissions = known.get(key) ?? new Set(ours.flatMap((role) => builtIn[role] ?? []))
  known.set(key, permissions)
  if (custom.length === 0) return permissions
  return new Set([...permissions, ...custom.flatMap((role) => role.permissions.filter(isGrantable))])
}

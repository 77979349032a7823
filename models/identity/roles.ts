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
  'disks',
  'vpcs',
  'subnets',
  'load_balancers',
  'certificates',
  'deploy_servers',
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
  'agent_sessions:message',
  'teams:message',
  'workflows:run',
  'workflows:publish',
  'connectors:use',
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
  operator: [...platformPermissions, 'operations:read'], // and follows what he began
}

const known = new Map<string, ReadonlySet<Permission>>()

/** All that a user with these roles may do. A role that does not exist gives nothing. */
export function permissionsOf(roles: string[]): ReadonlySet<Permission> {
  const builtInRoles = roles.filter((role) => role in builtIn)
  const key = builtInRoles.join()
  const permissions = known.get(key) ?? new Set(builtInRoles.flatMap((role) => builtIn[role] ?? []))
  known.set(key, permissions)
  return permissions
}

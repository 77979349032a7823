import { newId } from '../../lib/ids.ts'
import { rememberBrowser } from '../../models/identity/browsers.ts'
import { User } from '../../models/identity/users.ts'
import { makeMachine } from './machines.ts'
import type { TestTenant } from './tenants.ts'

/** Path parameters by the collection that a path begins with: `containers` → `{ id }`. */
export type Belongings = Record<string, Record<string, string>>

/** Makes one thing of each kind for a tenant, for tests that walk all operations. A new kind is added here. */
export async function makeOneOfEach(tenant: TestTenant): Promise<Belongings> {
  const container = await tenant.containers.create({ start: false })
  await container.operation.success()
  const { id: client } = await makeMachine(tenant.owner, ['containers:read'])
  const role = { name: `role-${newId().slice(-12)}`, permissions: ['containers:read'] }
  await tenant.owner.ask('POST', '/api/v1/roles', role)
  const { items: sessions } = await tenant.owner.get<{ items: { id: string }[] }>('/api/v1/account/sessions')
  const owner = await User.findOne({ tenant_id: tenant.id, roles: 'owner' }).lean()
  if (owner) await rememberBrowser(owner, { address: '127.0.0.1', user_agent: 'test' })
  const { items: browsers } = await tenant.owner.get<{ items: { id: string }[] }>('/api/v1/account/browsers')
  const user = await (await tenant.user('viewer')).get<{ id: string }>('/api/v1/account')
  return {
    'account/sessions': { id: sessions[0]?.id ?? '' },
    'account/browsers': { id: browsers[0]?.id ?? '' },
    'api-clients': { id: client },
    roles: { name: role.name, permission: 'containers:read' },
    users: { id: user.id },
    containers: { id: container.id },
    operations: { id: container.operation.id },
  }
}

/** `/api/v1/containers/{id}/start` → `containers` */
export const collectionOf = (path: string): string => /^\/api\/v1\/([^{]+?)\/?(\{|$)/.exec(path)?.[1] ?? path

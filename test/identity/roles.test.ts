import { beforeAll, describe, expect, test } from '@jest/globals'
import { platformPermissions } from '../../models/identity/roles.ts'
import type { Client, Json } from '../support/client.ts'
import { refusing } from '../support/refusals.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
let owner: Client
let admin: Client
beforeAll(async () => {
  tenant = await makeTenant()
  owner = tenant.owner
  admin = await tenant.user('admin')
})
const refused = refusing(() => tenant)
const path = '/api/v1/roles'

let made = 0
async function makeRole(permissions: string[], by = owner): Promise<string> {
  const name = `role-${++made}`
  expect(await by.ask('POST', path, { name, permissions })).toMatchObject({ status: 201 })
  return name
}
const names = async (query: string): Promise<{ names: unknown[]; total: number }> => {
  const { items, total } = await owner.get<{ items: Json[]; total: number }>(`${path}?${query}`)
  return { names: items.map(({ name }) => name), total }
}
/** A user with `roles:*`, `users:*` and little else. */
const manager = async (...more: string[]): Promise<Client> =>
  tenant.user(await makeRole(['roles:read', 'roles:create', 'roles:update', 'roles:delete', ...more]))

const lacking = (...permissions: string[]) => ({
  status: 403,
  body: { code: 'grant_denied', permissions },
})

describe('a role', () => {
  test('grants its users its permissions, and nothing else', async () => {
    const reader = await tenant.user(await makeRole(['containers:read']))
    expect(await reader.ask('GET', '/api/v1/containers')).toMatchObject({ status: 200 })
    expect(await refused(() => reader.ask('GET', path))).toMatchObject({ status: 403 })
  })

  test('takes effect on the next request after it is changed', async () => {
    const name = await makeRole(['containers:read'])
    const user = await tenant.user(name)
    expect(await user.ask('GET', path)).toMatchObject({ status: 403 })
    expect(
      await owner.ask('POST', `${path}/${name}/permissions`, { permission: 'roles:read' }),
    ).toMatchObject({ status: 200, body: { permissions: ['containers:read', 'roles:read'] } })
    expect(await user.ask('GET', path)).toMatchObject({ status: 200 })
    expect(await owner.ask('DELETE', `${path}/${name}/permissions/roles:read`)).toMatchObject({ status: 204 })
    expect(await user.ask('GET', path)).toMatchObject({ status: 403 })
    await owner.ask('PUT', `${path}/${name}`, { permissions: [] })
    expect(await user.ask('GET', '/api/v1/containers')).toMatchObject({ status: 403 })
  })

  test('is shown by name, and a change keeps the fields that it does not name', async () => {
    const name = await makeRole(['vms:read', 'vms:read', 'disks:read'])
    expect(await owner.ask('PUT', `${path}/${name}`, { description: 'reads' })).toMatchObject({ status: 200 })
    expect(await owner.get(`${path}/${name}`)).toMatchObject({
      name,
      tenant_id: tenant.id,
      description: 'reads',
      built_in: false,
      permissions: ['disks:read', 'vms:read'],
    })
  })

  test('of another tenant is not visible and grants nothing', async () => {
    const other = await makeTenant()
    const name = await makeRole(['containers:read'])
    for (const [method, body] of [['GET'], ['PUT', {}], ['DELETE']] as const)
      expect(await other.owner.ask(method, `${path}/${name}`, body)).toMatchObject({ status: 404 })
    const user = await other.user(name)
    expect(await user.ask('GET', '/api/v1/containers')).toMatchObject({ status: 403 })
  })

  test('cannot be deleted while it is in use; the refusal says by how many users', async () => {
    const name = await makeRole(['containers:read'])
    await tenant.user(name)
    await tenant.user(name, 'viewer')
    const answer = await refused(() => owner.ask('DELETE', `${path}/${name}`))
    expect(answer).toMatchObject({ status: 409, body: { code: 'role_in_use', users: 2 } })
    const unused = await makeRole([])
    expect(await owner.ask('DELETE', `${path}/${unused}`)).toMatchObject({ status: 204 })
    expect(await owner.ask('GET', `${path}/${unused}`)).toMatchObject({ status: 404 })
  })

  test.each(['owner', 'viewer', 'operator', 'taken'])('cannot be named %s a second time', async (name) => {
    if (name === 'taken') await owner.ask('POST', path, { name })
    expect(await refused(() => owner.ask('POST', path, { name }))).toMatchObject({
      status: 409,
      body: { code: 'name_taken' },
    })
  })

  test('cannot lose a permission that it does not hold', async () => {
    const name = await makeRole(['vms:read'])
    const answer = await refused(() => owner.ask('DELETE', `${path}/${name}/permissions/vms:create`))
    expect(answer).toMatchObject({ status: 404 })
  })

  test.each([...platformPermissions, 'vms:fly', '*'])('can never hold %s', async (permission) => {
    const operator = await tenant.user('owner', 'operator')
    const name = await makeRole([])
    for (const send of [
      () => operator.ask('POST', path, { name: 'climbs', permissions: [permission] }),
      () => operator.ask('PUT', `${path}/${name}`, { permissions: [permission] }),
      () => operator.ask('POST', `${path}/${name}/permissions`, { permission }),
    ])
      expect(await refused(send)).toMatchObject({ status: 422 })
  })
})

describe('built-in roles', () => {
  test('are in the list of each tenant, except the operator role', async () => {
    const { names: builtIn, total } = await names('built_in=true&sort_by=name&order=asc')
    expect([builtIn, total]).toEqual([['admin', 'developer', 'owner', 'viewer'], 4])
    expect(await owner.ask('GET', `${path}/operator`)).toMatchObject({ status: 404 })
    expect(await owner.get(`${path}/viewer`)).toMatchObject({ built_in: true, tenant_id: null })
  })

  test('are listed with the tenant’s own by the conventions of lists', async () => {
    const name = await makeRole([])
    expect(await names(`name=${name}`)).toEqual({ names: [name], total: 1 })
    expect(await names('q=DEVELOP')).toEqual({ names: ['developer'], total: 1 })
    expect((await names('limit=1')).names).toEqual([name])
    expect(await names('tenant_id=null&limit=2&sort_by=name&order=desc')).toEqual({
      names: ['viewer', 'owner'],
      total: 4,
    })
    expect(await owner.ask('GET', `${path}?color=red`)).toMatchObject({ status: 400 })
  })

  test.each(['owner', 'admin', 'developer', 'viewer'])('%s cannot be changed or deleted', async (name) => {
    const at = `${path}/${name}`
    for (const send of [
      () => owner.ask('PUT', at, { permissions: [] }),
      () => owner.ask('POST', `${at}/permissions`, { permission: 'vms:read' }),
      () => owner.ask('DELETE', `${at}/permissions/vms:read`),
      () => owner.ask('DELETE', at),
    ])
      expect(await refused(send)).toMatchObject({ status: 409, body: { code: 'built_in_role' } })
  })
})

describe('a user with limited permissions', () => {
  test('cannot create a role with permissions that the user lacks; the refusal names them', async () => {
    const send = () => admin.ask('POST', path, { name: 'more', permissions: ['users:delete', 'vms:read'] })
    expect(await refused(send)).toMatchObject(lacking('users:delete'))
    expect(await admin.ask('GET', `${path}/more`)).toMatchObject({ status: 404 })
  })

  test('cannot add permissions that the user lacks to their own role', async () => {
    const name = await makeRole(['roles:read', 'roles:update'])
    const user = await tenant.user(name)
    for (const send of [
      () => user.ask('PUT', `${path}/${name}`, { permissions: ['roles:read', 'users:update'] }),
      () => user.ask('POST', `${path}/${name}/permissions`, { permission: 'users:update' }),
    ])
      expect(await refused(send)).toMatchObject(lacking('users:update'))
    expect(await user.get(`${path}/${name}`)).toMatchObject({ permissions: ['roles:read', 'roles:update'] })
  })

  test('cannot weaken or delete a role with more permissions', async () => {
    const above = await makeRole(['users:delete'])
    const user = await manager()
    for (const send of [
      () => user.ask('PUT', `${path}/${above}`, { permissions: [] }),
      () => user.ask('DELETE', `${path}/${above}/permissions/users:delete`),
      () => user.ask('DELETE', `${path}/${above}`),
    ])
      expect(await refused(send)).toMatchObject(lacking('users:delete'))
  })

  test('can create a role with permissions that the user holds', async () => {
    const user = await manager('vms:read')
    await makeRole(['vms:read', 'roles:read'], user)
  })
})

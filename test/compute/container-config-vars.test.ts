import { beforeAll, describe, expect, test } from '@jest/globals'
import { makeMachine, tokenOf } from '../support/api-clients.ts'
import { Client, type Json } from '../support/client.ts'
import { engine } from '../support/engine.ts'
import { refusing } from '../support/refusals.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
let owner: Client
beforeAll(async () => {
  tenant = await makeTenant()
  owner = tenant.owner
})
const refused = refusing(() => tenant)
const pathOf = (id: string): string => `/api/v1/containers/${id}/config-vars`
const put = (id: string, config_vars: Json) => owner.ask('PUT', pathOf(id), { config_vars })
const envOf = async (id: string): Promise<string[]> => (await engine.only(id)).Config.Env

describe('config vars', () => {
  test('are read, replaced as a whole, and kept', async () => {
    const { id } = await tenant.containers.make({ start: false, config_vars: { A: '1', B: '2' } })
    expect(await owner.get(pathOf(id))).toEqual({ config_vars: { A: '1', B: '2' } })
    expect(await put(id, { B: '3' })).toMatchObject({
      status: 200,
      body: { config_vars: { B: '3' }, needs_restart: false },
    })
    expect(await owner.get(pathOf(id))).toEqual({ config_vars: { B: '3' } })
    await (await tenant.containers.start(id)).operation.success()
    expect(await envOf(id)).toEqual(expect.arrayContaining(['B=3']))
  })

  test('of a running container take effect at its next start, and the container says so until then', async () => {
    const { id } = await tenant.containers.make({ config_vars: { A: '1' } })
    expect((await put(id, { A: '2' })).body).toMatchObject({ needs_restart: true })
    expect(await tenant.containers.get(id)).toMatchObject({ pending_changes: ['config_vars'] })
    expect(await envOf(id)).toContain('A=1')
    await (await tenant.containers.stop(id)).operation.success()
    await (await tenant.containers.start(id)).operation.success()
    expect(await envOf(id)).toContain('A=2')
    expect(await tenant.containers.get(id)).toMatchObject({ pending_changes: [] })
  })

  test('cannot be changed while an operation is under way', async () => {
    const { id, operation } = await tenant.containers.create({ config_vars: { A: '1' } })
    expect(await put(id, { A: '2' })).toMatchObject({
      status: 409,
      body: { code: 'operation_in_progress', operation_id: operation.id },
    })
    await operation.success()
    expect(await envOf(id)).toContain('A=1')
  })

  test('need the update permission to be changed, and each read is audited', async () => {
    const { id } = await tenant.containers.make({ start: false, config_vars: { A: 'value-not-to-be-kept' } })
    const viewer = await tenant.user('viewer')
    const { status, headers } = await viewer.ask('GET', pathOf(id))
    expect(status).toBe(200)
    const answer = await refused(() => viewer.ask('PUT', pathOf(id), { config_vars: {} }))
    expect(answer).toMatchObject({ status: 403, body: { permission: 'containers:update' } })
    const events = await owner.get<{ items: Json[] }>(
      `/api/v1/audit-events?request_id=${headers.get('x-request-id')}`,
    )
    expect(events.items).toMatchObject([{ action: `GET ${pathOf('{id}')}`, resource_id: id, status: 200 }])
    expect(JSON.stringify(events)).not.toContain('value-not-to-be-kept')
  })

  test('show their names to who may read, and their values with the permission for secrets or updates', async () => {
    const { id } = await tenant.containers.make({ start: false, config_vars: { A: '1', B: '2' } })
    const seenWith = async (...permissions: string[]) => {
      const machine = await makeMachine(owner, permissions)
      return new Client(await tokenOf(machine)).get(pathOf(id))
    }
    const names = { config_vars: { A: null, B: null } }
    const values = { config_vars: { A: '1', B: '2' } }
    expect(await (await tenant.user('viewer')).get(pathOf(id))).toEqual(names)
    expect(await seenWith('containers:read', 'microvms:secrets')).toEqual(names)
    expect(await seenWith('containers:read', 'containers:secrets')).toEqual(values)
    expect(await seenWith('containers:read', 'containers:update')).toEqual(values)
    const secretsOnly = new Client(await tokenOf(await makeMachine(owner, ['containers:secrets'])))
    expect(await refused(() => secretsOnly.ask('GET', pathOf(id)))).toMatchObject({ status: 403 })
  })

  test.each<Json>([{ '1A': 'x' }, { A: 1 }, { 'A B': 'x' }, { A: null }])('are refused: %j', async (vars) => {
    const { id } = await tenant.containers.make({ start: false })
    expect(await refused(() => put(id, vars))).toMatchObject({ status: 422 })
  })
})

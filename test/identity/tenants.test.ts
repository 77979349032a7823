import { afterEach, beforeAll, describe, expect, test } from '@jest/globals'
import mongoose from 'mongoose'
import { newId } from '../../lib/ids.ts'
import { Tenant } from '../../models/identity/tenants.ts'
import { openSession } from '../../models/identity/session-tokens.ts'
import { findByPassword } from '../../models/identity/users.ts'
import { reserve } from '../../models/compute/reservations.ts'
import { AuditEvent } from '../../models/identity/audit.ts'
import { aiWorkflowsOf } from '../support/clients/ai-workflows.ts'
import { Client, type Json, Operation, sleeper } from '../support/client.ts'
import { engine } from '../support/engine.ts'
import { eventually } from '../support/eventually.ts'
import { platform, startAll } from '../support/platform.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'
import { makeSubnet, makeVpc } from '../support/vpcs.ts'

// Tenants as operators see them, and their limits.

const path = '/api/v1/platform/tenants'

let home: TestTenant
let operator: Client
beforeAll(async () => {
  home = await makeTenant()
  operator = await home.user('operator')
})

const email = () => `${newId()}@example.com`
/**
 * Logs in without the API, which limits logins by address. Null if there is no such user, or the user is locked out.
 */
async function login(address: string, password: string): Promise<Client | null> {
  const user = await findByPassword(address, password)
  return user && new Client((await openSession(user)).token)
}

interface Made extends Json {
  id: string
  limits: Json
  owner: { id: string; password: string | null }
}

async function make(body: Json): Promise<Made> {
  const answer = await operator.ask('POST', path, body)
  expect([answer.status, answer.body]).toEqual([201, expect.anything()])
  expect(answer.headers.get('location')).toBe(`${path}/${(answer.body as Made).id}`)
  return answer.body as Made
}

describe('a new tenant', () => {
  test('has an owner, who logs in with the generated password', async () => {
    const address = email()
    const { id, owner } = await make({ name: 'Example Ltd', owner: { email: address } })
    const { password } = owner
    const user = await login(address, password ?? '')
    const { tenant_id, permissions } = (await user?.get('/api/v1/account')) ?? {}
    expect(tenant_id).toBe(id)
    expect(permissions).toEqual(expect.arrayContaining(['containers:create', 'users:delete']))
    expect(permissions).not.toContainEqual(expect.stringMatching(/^platform:/))
    expect(JSON.stringify(await operator.get(`${path}/${id}`))).not.toContain(password)
  })

  test('gets the password and limits of the request, and defaults for the rest', async () => {
    const owner = { email: email().toUpperCase(), name: 'Ada', password: 'correct horse battery' }
    const made = await make({ name: 'x', owner, limits: { max_vpcs: 3 } })
    expect(made).toMatchObject({
      owner: { email: owner.email.toLowerCase(), name: 'Ada', password: null },
      limits: { max_vpcs: 3, max_cpu_cores: 64 },
    })
    expect(await login(owner.email, owner.password)).not.toBeNull()
    expect(await login(owner.email, 'another password')).toBeNull()
  })

  test('is refused if the address is taken, and no tenant is left', async () => {
    const taken = email()
    await make({ name: 'first', owner: { email: taken } })
    const name = newId()
    const answer = await operator.ask('POST', path, { name, owner: { email: taken.toUpperCase() } })
    expect(answer).toMatchObject({ status: 409, body: { code: 'email_taken' } })
    expect(await Tenant.countDocuments({ name })).toBe(0)
  })

  test('is created once for one Idempotency-Key, and both answers show the password', async () => {
    const body = { name: newId(), owner: { email: email() } }
    const headers = { 'idempotency-key': newId() }
    const first = await operator.ask('POST', path, body, headers)
    const second = await operator.ask('POST', path, body, headers)
    expect([first.status, second.status, second.body]).toEqual([201, 201, first.body])
  })
})

test('an operator finds a tenant in the list, and renames it', async () => {
  const name = newId()
  const tenant = await make({ name, owner: { email: email() } })
  expect(await operator.get(`${path}?name=${name}`)).toMatchObject({ total: 1, items: [{ id: tenant.id }] })
  const answer = await operator.ask('PATCH', `${path}/${tenant.id}`, { name: `${name} renamed` })
  expect(answer).toMatchObject({ status: 200, body: { name: `${name} renamed` } })
  expect(await operator.get(`${path}/${tenant.id}`)).toEqual(answer.body)
  for (const [method, of, body] of [
    ['GET', '', undefined],
    ['PATCH', '', { name }],
    ['PUT', '/limits', { max_vpcs: 1 }],
  ] as const) {
    expect(await operator.ask(method, `${path}/${newId()}${of}`, body)).toMatchObject({ status: 404 })
  }
})

describe('a tenant’s limits', () => {
  test('are set by the operator, one by one', async () => {
    const { id, owner } = await makeTenant()
    const before = await owner.get('/api/v1/limits')
    expect(before).toEqual({
      max_archive_gib: 100,
      max_backup_gib: 500,
      max_certificates: 100,
      max_connectors: 50,
      max_cpu_cores: 64,
      max_deploy_servers: 1,
      max_evals_per_workflow: 200,
      max_llm_tokens_month: 10_000_000,
      max_load_balancers: 20,
      max_rag_documents: 10_000,
      max_rag_gib: 20,
      max_ram_gib: 256,
      max_storage_gib: 2048,
      max_vms_per_vpc: 250,
      max_subnets: 200,
      max_tools: 200,
      max_vpcs: 10,
      max_workflow_versions: 5_000,
      max_workflows: 100,
      usage: expect.objectContaining({
        max_cpu_cores: { used: 0, reserved: 0 },
        max_llm_tokens_month: { used: 0, reserved: 0 },
        max_vms_per_vpc: null,
      }),
      tenant_id: id,
      updated_at: expect.any(String),
    })
    const { status, body } = await operator.ask('PUT', `${path}/${id}/limits`, { max_vpcs: 0 })
    expect([status, body]).toEqual([200, { ...before, max_vpcs: 0, updated_at: expect.any(String) }])
    expect(String(body['updated_at']) > String(before['updated_at'])).toBe(true)
    expect(await owner.get('/api/v1/limits')).toEqual(body)
  })

  test('are shown beside what counts against each, to its owner and to nobody else', async () => {
    const tenant = await makeTenant()
    const other = await makeTenant()
    const { usage: before } = await tenant.owner.get<{ usage: Json }>('/api/v1/limits')
    await tenant.containers.make({ cpu_cores: 0.5, memory_mib: 512, start: false })
    await tenant.disks.make({ size_gib: 3 })
    await makeSubnet(tenant, (await makeVpc(tenant)).id)
    const workflows = aiWorkflowsOf(tenant.owner)
    await workflows.make()
    const { usage } = await tenant.owner.get<{ usage: Json }>('/api/v1/limits')
    expect(usage).toEqual({
      ...before,
      max_cpu_cores: { used: 0.5, reserved: 0 },
      max_ram_gib: { used: 0.5, reserved: 0 },
      max_storage_gib: { used: 3, reserved: 0 },
      max_vpcs: { used: 1, reserved: 0 },
      max_subnets: { used: 1, reserved: 0 },
      max_workflows: { used: 1, reserved: 0 },
    })
    expect(await other.owner.get('/api/v1/limits')).toMatchObject({ usage: before })
  })

  test('are refused unless they are whole numbers from 0', async () => {
    const { id, owner } = await makeTenant()
    const before = await owner.get('/api/v1/limits')
    for (const limits of [{ max_vpcs: -1 }, { max_vpcs: 0.5 }, { max_vpcs: null }, { vpcs: 1 }, [], '"x"']) {
      expect(await operator.ask('PUT', `${path}/${id}/limits`, limits)).toMatchObject({ status: 422 })
    }
    expect(await owner.get('/api/v1/limits')).toEqual(before)
  })

  test('below the present use take nothing away, and only refuse more', async () => {
    const tenant = await makeTenant({ max_cpu_cores: 4 })
    const { id } = await tenant.containers.make({ cpu_cores: 1, start: false })
    await operator.ask('PUT', `${path}/${tenant.id}/limits`, { max_cpu_cores: 0 })
    const more = await tenant.owner.ask('POST', '/api/v1/containers', sleeper({ start: false }))
    expect(more).toMatchObject({
      status: 409,
      body: { code: 'quota_exceeded', limit: 'max_cpu_cores', allowed: 0, used: 1 },
    })
    expect(await tenant.holds()).toMatchObject({ cpu_milli: 1000, reservations: 1 })
    // A reduction is always possible, even if the result is still above the limit.
    await (await tenant.containers.update(id, { cpu_cores: 0.5 })).operation.success()
    expect(await tenant.holds()).toMatchObject({ cpu_milli: 500 })
    await (await tenant.containers.delete(id)).operation.success()
    expect(await tenant.holds()).toMatchObject({ cpu_milli: 0, reservations: 0 })
  })

  test('hold when many containers are created in parallel', async () => {
    const tenant = await makeTenant({ max_cpu_cores: 1 })
    const asked = Array.from({ length: 20 }, () => sleeper({ cpu_cores: 0.2, start: false }))
    const answers = await Promise.all(
      asked.map((body) => tenant.owner.ask('POST', '/api/v1/containers', body)),
    )
    const statuses = answers.map(({ status }) => status).toSorted((a, b) => a - b)
    expect(statuses).toEqual([...Array<number>(5).fill(202), ...Array<number>(15).fill(409)])
    expect(await tenant.holds()).toMatchObject({ cpu_milli: 1000, reservations: 5 })
  })
})

test('an operator lists the operations of all tenants, or of one', async () => {
  const [one, other] = [await makeTenant(), await makeTenant()]
  const made = await Promise.all(
    [one, other].map(async ({ containers }) => {
      const { operation } = await containers.create({ start: false })
      await operation.success()
      return operation.id
    }),
  )
  type List = { items: { id: string }[]; total: number }
  const all = await operator.get<List>('/api/v1/platform/operations?limit=100')
  expect(all.items.map(({ id }) => id)).toEqual(expect.arrayContaining(made))
  const ones = await operator.get<List>(`/api/v1/platform/operations?tenant_id=${one.id}`)
  expect([ones.items.map(({ id }) => id), ones.total]).toEqual([[made[0]], 1])
})

/** Starts deleting a tenant. */
const begin = async (id: string): Promise<Operation> => {
  const answer = await operator.ask('DELETE', `${path}/${id}`)
  expect(answer).toMatchObject({ status: 202, body: { id, status: 'deleting' } })
  return new Operation(operator, answer.headers.get('operation-location') ?? '')
}

/** The collections that still hold records of the tenant, read directly from the database. */
async function left({ id }: TestTenant): Promise<string[]> {
  const all = (await mongoose.connection.db?.collections()) ?? []
  // A time series is read through its own collection, not through its buckets.
  const collections = all.filter(({ collectionName }) => !collectionName.startsWith('system.'))
  expect(collections.length).toBeGreaterThan(10)
  const counts = await Promise.all(
    collections.map(async (collection) => {
      const its = { $or: [{ tenant_id: id }, { 'meta.tenant_id': id }, { _id: { $regex: id } as never }] }
      return (await collection.countDocuments(its)) ? [collection.collectionName] : []
    }),
  )
  return counts.flat().toSorted((a, b) => a.localeCompare(b))
}

describe('deleting a tenant', () => {
  afterEach(startAll)

  test('removes all its resources, and the operator can follow the operation to its end', async () => {
    const [tenant, other] = [await makeTenant(), await makeTenant()]
    await tenant.containers.make()
    await tenant.containers.create({ start: false }, { 'idempotency-key': newId() })
    await other.containers.make({ start: false })
    const subnet = await makeSubnet(tenant, (await makeVpc(tenant)).id)
    await tenant.containers.make({ start: false, nics: [{ subnet_id: subnet.id }] })
    expect(await left(tenant)).toEqual(
      expect.arrayContaining([
        'audit_events',
        'containers',
        'counters',
        'idempotency_keys',
        'nics',
        'operations',
        'reservations',
        'sessions',
        'subnets',
        'tenants',
        'users',
        'vpcs',
      ]),
    )
    const theirs = await left(other)

    const operation = await begin(tenant.id)
    expect(await operation.success()).toMatchObject({
      resource_kind: 'tenant',
      resource_id: tenant.id,
      verb: 'delete',
      error: null,
    })
    expect(await left(tenant)).toEqual(['audit_events']) // the audit trail is kept
    expect(await engine.withLabel('keelson.tenant', tenant.id)).toEqual([])
    expect(await operator.ask('GET', `${path}/${tenant.id}`)).toMatchObject({ status: 404 })
    expect(await operator.ask('DELETE', `${path}/${tenant.id}`)).toMatchObject({ status: 404 })
    expect(await left(other)).toEqual(theirs)
  })

  test('locks its users out at once, and refuses new resources', async () => {
    const password = newId()
    const address = email()
    const made = await make({ name: newId(), owner: { email: address, password } })
    const user = await login(address, password)
    await user?.get('/api/v1/account')
    await platform.kill('worker') // so that the deletion is accepted and nothing more
    const operation = await begin(made.id)

    expect(await user?.ask('GET', '/api/v1/account')).toMatchObject({ status: 401 })
    expect(await login(address, password)).toBeNull()
    const size = { cpu_milli: 1, memory_mib: 1, disk_gib: 0 }
    await expect(reserve(newId(), made.id, size)).rejects.toMatchObject({ code: 'state_conflict' })
    expect(await operator.ask('DELETE', `${path}/${made.id}`)).toMatchObject({
      status: 409,
      body: { code: 'operation_in_progress', operation_id: operation.id },
    })

    await platform.start('worker')
    await operation.success()
    expect(await login(address, password)).toBeNull()
    await make({ name: newId(), owner: { email: address } }) // the address is free again
  })

  test('completes although the worker is killed in the middle', async () => {
    const tenant = await makeTenant()
    await Promise.all([1, 2, 3].map(() => tenant.containers.make()))
    const seen = await engine.watch(tenant.id)
    const operation = await begin(tenant.id)
    await seen.next('destroy')
    await platform.kill('worker')
    await platform.start('worker')
    await operation.success()
    expect(seen.count('destroy')).toBe(3)
    expect(await left(tenant)).toEqual(['audit_events'])
    expect(await engine.withLabel('keelson.tenant', tenant.id)).toEqual([])
  })

  test('deletes each resource by its own operation, however many there are', async () => {
    const tenant = await makeTenant({ max_vpcs: 200 })
    for (let i = 0; i < 120; i += 10)
      await Promise.all(Array.from({ length: 10 }, (_, j) => makeVpc(tenant, { cidr: `10.${i + j}.0.0/16` })))
    await platform.kill('worker')
    const operation = await begin(tenant.id)
    const children = (state: string) =>
      operator.get<{ total: number }>(`/api/v1/platform/operations?parent_id=${operation.id}&state=${state}`)
    await platform.start('worker')
    await eventually(async () => (await children('succeeded')).total > 20)
    await platform.kill('worker')
    await platform.start('worker')
    await operation.success()
    expect(await left(tenant)).toEqual(['audit_events'])
    const deletions = { tenant_id: tenant.id, action: 'delete vpc' }
    expect(await AuditEvent.countDocuments(deletions)).toBe(120) // the operations are deleted with the tenant
  })

  test('cancels the operations that are under way', async () => {
    const tenant = await makeTenant()
    await platform.kill('host')
    await Promise.all([1, 2].map(() => tenant.containers.create()))
    const operation = await begin(tenant.id)
    await platform.start('host')
    await operation.success()
    expect(await left(tenant)).toEqual(['audit_events'])
    expect(await engine.withLabel('keelson.tenant', tenant.id)).toEqual([])
  })

  test('cannot be cancelled', async () => {
    const tenant = await makeTenant()
    await platform.kill('worker')
    const operation = await begin(tenant.id)
    const client = await home.user('owner')
    expect(await client.ask('POST', `${operation.path}/cancel`)).toMatchObject({
      status: 409,
      body: { code: 'state_conflict' },
    })
    await platform.start('worker')
    await operation.success()
  })

  test('is refused while operators belong to it', async () => {
    const tenant = await makeTenant()
    await tenant.user('operator')
    expect(await operator.ask('DELETE', `${path}/${tenant.id}`)).toMatchObject({
      status: 409,
      body: { code: 'tenant_has_operators' },
    })
    await tenant.owner.get('/api/v1/account')
  })
})

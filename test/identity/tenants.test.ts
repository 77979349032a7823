import { beforeAll, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { Tenant } from '../../models/identity/tenants.ts'
import { ask, Client, type Json, sleeper } from '../support/client.ts'
import { makeOperator, makeTenant } from '../support/tenants.ts'

// Tenants, as operators see them, and what limits them.

const path = '/api/v1/platform/tenants'

let operator: Client
beforeAll(async () => {
  operator = await makeOperator()
})

const email = () => `${newId()}@example.com`
const login = (address: string, password: string) =>
  ask('POST', '/api/v1/auth/login', { body: { email: address, password } })

interface Made extends Json {
  tenant: { id: string; limits: Json }
  password: string | null
}

async function make(body: Json): Promise<Made> {
  const answer = await operator.ask('POST', path, body)
  expect([answer.status, answer.body]).toEqual([201, expect.anything()])
  expect(answer.headers.get('location')).toBe(`${path}/${(answer.body as Made).tenant.id}`)
  return answer.body as Made
}

describe('a new tenant', () => {
  test('comes with an owner, who logs in with the password that was made', async () => {
    const address = email()
    const { tenant, password } = await make({ name: 'Example Ltd', owner: { email: address } })
    const { status, body } = await login(address, password ?? '')
    expect([status, body]).toEqual([
      200,
      expect.objectContaining({ user: expect.objectContaining({ tenant_id: tenant.id }) }),
    ])
    const { permissions } = await new Client(String(body['token'])).get('/api/v1/account')
    expect(permissions).toEqual(expect.arrayContaining(['containers:create', 'users:delete']))
    expect(permissions).not.toContainEqual(expect.stringMatching(/^platform:/))
    expect(JSON.stringify(await operator.get(`${path}/${tenant.id}`))).not.toContain(password)
  })

  test('takes a password and limits that are given; the rest is usual', async () => {
    const owner = { email: email().toUpperCase(), name: 'Ada', password: 'correct horse battery' }
    const made = await make({ name: 'x', owner, limits: { max_vpcs: 3 } })
    expect(made).toMatchObject({
      password: null,
      owner: { email: owner.email.toLowerCase(), name: 'Ada' },
      tenant: { limits: { max_vpcs: 3, max_cpu_cores: 64 } },
    })
    expect(await login(owner.email, owner.password)).toMatchObject({ status: 200 })
  })

  test('with an address that is somebody’s is refused, and leaves no tenant', async () => {
    const taken = email()
    await make({ name: 'first', owner: { email: taken } })
    const name = newId()
    const answer = await operator.ask('POST', path, { name, owner: { email: taken.toUpperCase() } })
    expect(answer).toMatchObject({ status: 409, body: { code: 'email_taken' } })
    expect(await Tenant.countDocuments({ name })).toBe(0)
  })

  test('is made once for one Idempotency-Key, and shows its password again', async () => {
    const body = { name: newId(), owner: { email: email() } }
    const headers = { 'idempotency-key': newId() }
    const first = await operator.ask('POST', path, body, headers)
    const second = await operator.ask('POST', path, body, headers)
    expect([first.status, second.status, second.body]).toEqual([201, 201, first.body])
  })
})

test('a tenant is found in the list, and renamed', async () => {
  const name = newId()
  const { tenant } = await make({ name, owner: { email: email() } })
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

describe('limits', () => {
  test('are what the operator set, each by itself', async () => {
    const { id, owner } = await makeTenant()
    const before = await owner.get('/api/v1/limits')
    expect(before).toEqual({
      max_cpu_cores: 64,
      max_llm_tokens_month: 10_000_000,
      max_ram_gib: 256,
      max_storage_gib: 2048,
      max_vms_per_vpc: 250,
      max_vpcs: 10,
      tenant_id: id,
      updated_at: expect.any(String),
    })
    const { status, body } = await operator.ask('PUT', `${path}/${id}/limits`, { max_vpcs: 0 })
    expect([status, body]).toEqual([200, { ...before, max_vpcs: 0, updated_at: expect.any(String) }])
    expect(String(body['updated_at']) > String(before['updated_at'])).toBe(true)
    expect(await owner.get('/api/v1/limits')).toEqual(body)
  })

  test('that are no whole numbers from 0 are refused', async () => {
    const { id, owner } = await makeTenant()
    const before = await owner.get('/api/v1/limits')
    for (const limits of [{ max_vpcs: -1 }, { max_vpcs: 0.5 }, { max_vpcs: null }, { vpcs: 1 }, [], '"x"']) {
      expect(await operator.ask('PUT', `${path}/${id}/limits`, limits)).toMatchObject({ status: 422 })
    }
    expect(await owner.get('/api/v1/limits')).toEqual(before)
  })

  test('below what is in use take nothing away, and refuse only more', async () => {
    const tenant = await makeTenant({ max_cpu_cores: 4 })
    const { id } = await tenant.containers.make({ cpu_cores: 1, start: false })
    await operator.ask('PUT', `${path}/${tenant.id}/limits`, { max_cpu_cores: 0 })
    const more = await tenant.owner.ask('POST', '/api/v1/containers', sleeper({ start: false }))
    expect(more).toMatchObject({
      status: 409,
      body: { code: 'quota_exceeded', limit: 'max_cpu_cores', allowed: 0, used: 1 },
    })
    expect(await tenant.holds()).toMatchObject({ cpu_milli: 1000, reservations: 1 })
    // Less is always possible, though it is still above the limit.
    await (await tenant.containers.update(id, { cpu_cores: 0.5 })).operation.success()
    expect(await tenant.holds()).toMatchObject({ cpu_milli: 500 })
    await (await tenant.containers.delete(id)).operation.success()
    expect(await tenant.holds()).toMatchObject({ cpu_milli: 0, reservations: 0 })
  })

  test('are kept by many creations at once', async () => {
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

test('an operator sees the operations of all tenants, or of one', async () => {
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

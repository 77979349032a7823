import { beforeAll, describe, expect, test } from '@jest/globals'
import { hashPassword, User } from '../../models/identity/users.ts'
import { ask, type Client, type Json } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import { makeMachine, requestToken } from '../support/api-clients.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

const path = '/api/v1/audit-events'
let tenant: TestTenant
let owner: Client

beforeAll(async () => {
  tenant = await makeTenant()
  owner = tenant.owner
})

const events = async (query: string, client = owner): Promise<Json[]> =>
  (await client.get<{ items: Json[] }>(`${path}?${query}`)).items
const ofRequest = (headers: Headers) => events(`request_id=${headers.get('x-request-id')}`)

describe('an audit event', () => {
  test('of a change holds the actor, the action, the resource, the source address and the outcome', async () => {
    const { id, email } = await owner.get('/api/v1/account')
    const name = 'audited'
    const answer = await owner.ask(
      'POST',
      '/api/v1/containers',
      {
        name,
        image: 'busybox',
        cpu_cores: 0.1,
        memory_mib: 16,
        start: false,
        config_vars: { KEY: 'hidden-value' },
      },
      { 'user-agent': 'audit-test/1', 'x-forwarded-for': '203.0.113.7' },
    )
    expect(answer.status).toBe(202)
    const [event, ...more] = await ofRequest(answer.headers)
    expect(more).toEqual([])
    expect(event).toEqual({
      id: expect.any(String),
      tenant_id: tenant.id,
      time: expect.stringMatching(/^\d{4}-.*Z$/),
      actor_id: id,
      actor_kind: 'user',
      actor_name: email,
      action: 'POST /api/v1/containers',
      resource_kind: 'container',
      resource_id: answer.body['id'],
      path: '/api/v1/containers',
      address: expect.stringContaining('127.0.0.1'),
      user_agent: 'audit-test/1',
      status: 202,
      outcome: 'succeeded',
      problem_code: null,
      request_id: answer.headers.get('x-request-id'),
    })
    expect(JSON.stringify(event)).not.toMatch(/hidden-value/)
  })

  test('of a change holds the id of the changed resource', async () => {
    const { id } = await tenant.containers.make({ start: false })
    const answer = await owner.ask('DELETE', `/api/v1/containers/${id}`)
    const [event] = await ofRequest(answer.headers)
    expect(event).toMatchObject({
      resource_kind: 'container',
      resource_id: id,
      path: `/api/v1/containers/${id}`,
    })
  })

  test.each([
    ['403', 'viewer', {}, 403, 'permission_denied'],
    ['422', 'owner', { name: '-' }, 422, 'invalid_input'],
  ])('of a refused request holds the reason: %s', async (_, role, body, status, code) => {
    const caller = await tenant.user(role)
    const answer = await caller.ask('POST', '/api/v1/containers', body)
    expect(answer.status).toBe(status)
    const [event] = await ofRequest(answer.headers)
    expect(event).toMatchObject({ outcome: 'refused', status, problem_code: code, resource_id: null })
  })

  test('is not written for a read', async () => {
    const answer = await owner.ask('GET', '/api/v1/containers')
    expect(await ofRequest(answer.headers)).toEqual([])
  })
})

describe('a login', () => {
  const email = 'audited-login@example.com'
  const password = 'the right password'
  const login = (sent: string, by = email) =>
    ask('POST', '/api/v1/auth/login', { body: { email: by, password: sent } })

  beforeAll(async () => {
    await User.deleteOne({ email }).setOptions({ everyTenant: true })
    const password_hash = await hashPassword(password)
    await new User({ tenant_id: tenant.id, email, password_hash, roles: [] }).save()
  })

  test('is audited in the user’s tenant', async () => {
    const { headers } = await login(password)
    expect(await ofRequest(headers)).toMatchObject([
      { actor_name: email, action: 'POST /api/v1/auth/login', status: 200, outcome: 'succeeded' },
    ])
  })

  test('is audited if it fails, without the password', async () => {
    const { headers, status } = await login('a wrong password')
    expect(status).toBe(401)
    const found = await eventually(async () => {
      const [event] = await ofRequest(headers)
      return event
    })
    expect(found).toMatchObject({
      actor_name: email,
      outcome: 'refused',
      problem_code: 'invalid_credentials',
    })
    expect(JSON.stringify(found)).not.toMatch(/password/)
  })
})

describe('a token request', () => {
  test('is audited in the client’s tenant, refused or not, without the secret', async () => {
    const machine = await makeMachine(owner, ['containers:read'])
    const issued = await requestToken(machine)
    expect(await ofRequest(issued.headers)).toMatchObject([
      { actor_kind: 'api_client', action: 'POST /oauth/token', outcome: 'succeeded', status: 200 },
    ])
    const refused = await requestToken({ ...machine, client_secret: 'kcs_a-wrong-secret' })
    const event = await eventually(async () => (await ofRequest(refused.headers))[0])
    expect(event).toMatchObject({ outcome: 'refused', status: 401, problem_code: 'invalid_client' })
    expect(JSON.stringify(event)).not.toContain('wrong-secret')
  })
})

describe('the list of audit events', () => {
  test('holds the tenant’s own events, newest first', async () => {
    const other = await makeTenant()
    await other.owner.ask('POST', '/api/v1/containers', {})
    const theirs = await events('', other.owner)
    expect(theirs.map(({ tenant_id }) => tenant_id)).toEqual([other.id])
    const times = (await events('limit=100')).map(({ time }) => String(time))
    expect(times.length).toBeGreaterThan(1)
    expect(times).toEqual(times.toSorted().toReversed())
  })

  test('can be filtered by a field', async () => {
    const refused = await events('outcome=refused&limit=100')
    expect(refused.length).toBeGreaterThan(0)
    expect(new Set(refused.map(({ outcome }) => outcome))).toEqual(new Set(['refused']))
  })

  test('requires audit:read', async () => {
    const developer = await tenant.user('developer')
    expect(await developer.ask('GET', path)).toMatchObject({
      status: 403,
      body: { permission: 'audit:read' },
    })
  })
})

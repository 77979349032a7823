import { beforeAll, expect, test } from '@jest/globals'
import { allowInsecureRequests, clientCredentialsGrant, discovery } from 'openid-client'
import { newId } from '../../lib/ids.ts'
import { platformPermissions, tenantPermissions } from '../../models/identity/roles.ts'
import { type Answer, ask, type Client } from '../support/client.ts'
import { declared } from '../support/declared.ts'
import { eventually } from '../support/eventually.ts'
import { makeMachine, type Machine, replicas, requestToken, tokenOf } from '../support/api-clients.ts'
import { facts } from '../support/stack.ts'
import { makeOperator, makeTenant, type TestTenant } from '../support/tenants.ts'
import { bounce, notification, openTopic, post, signed } from '../support/topic.ts'

// The twelve rules of the interface's Authentication section, in order. A change through one replica of the API takes
// effect on the other on the next request.

let tenant: TestTenant
let owner: Client
let first: string
let second: string
beforeAll(async () => {
  tenant = await makeTenant()
  owner = tenant.owner
  ;[first, second] = replicas()
})

const containers = '/api/v1/containers'
const at = (
  replica: string,
  token: string,
  method = 'GET',
  path = containers,
  body?: unknown,
): Promise<Answer> => ask(method, `${replica}${path}`, { token, body })
const scopes = ['containers:read', 'containers:create']

test('rule 1: every route needs a bearer token, from the token endpoint or a login', async () => {
  const token = await tokenOf(await makeMachine(owner, scopes))
  for (const replica of [first, second]) {
    expect((await at(replica, token)).status).toBe(200)
    expect((await at(replica, owner.token)).status).toBe(200)
    const { status, headers } = await ask('GET', `${replica}${containers}`)
    expect([status, headers.get('www-authenticate')]).toEqual([401, expect.stringMatching(/^Bearer/)])
  }
})

test('rule 2: a client gets a token by HTTP basic or form fields, for fewer scopes on request, never more', async () => {
  const machine = await makeMachine(owner, scopes)
  const all = await requestToken(machine)
  expect(all).toMatchObject({ status: 200, body: { token_type: 'Bearer', expires_in: 3600 } })
  expect(all.headers.get('cache-control')).toBe('no-store')
  expect(String(all.body['scope']).split(' ').toSorted()).toEqual(scopes.toSorted())

  const fewer = await tokenOf(machine, 'containers:read')
  expect((await at(first, fewer)).status).toBe(200)
  expect((await at(first, fewer, 'POST', containers, {})).status).toBe(403)
  for (const scope of ['containers:delete', 'containers:read containers:delete', 'nonsense']) {
    expect(await requestToken(machine, { scope })).toMatchObject({
      status: 400,
      body: { error: 'invalid_scope' },
    })
  }

  const { client_id, client_secret } = machine
  const form = new URLSearchParams({ grant_type: 'client_credentials', client_id, client_secret }).toString()
  const headers = { 'content-type': 'application/x-www-form-urlencoded' }
  expect(await ask('POST', '/oauth/token', { body: form, headers })).toMatchObject({ status: 200 })

  const wrong = await requestToken({ ...machine, client_secret: `${client_secret}x` })
  expect(wrong).toMatchObject({ status: 401, body: { error: 'invalid_client' } })
  expect(wrong.headers.get('www-authenticate')).toMatch(/^Basic/)
  const code = await requestToken(machine, { grant_type: 'password' })
  expect(code).toMatchObject({ status: 400, body: { error: 'unsupported_grant_type' } })
  const none = await ask('POST', '/oauth/token', { body: '', headers })
  expect(none).toMatchObject({ status: 400, body: { error: 'invalid_request' } })
})

test('rule 2: a published OAuth library discovers the endpoint, gets a token and uses it', async () => {
  const { client_id, client_secret } = await makeMachine(owner, scopes)
  const server = new URL(facts().api_url)
  const config = await discovery(server, client_id, client_secret, undefined, {
    algorithm: 'oauth2',
    execute: [allowInsecureRequests],
  })
  const tokens = await clientCredentialsGrant(config, { scope: 'containers:read' })
  expect(tokens).toMatchObject({ token_type: 'bearer', scope: 'containers:read' })
  expect((await at(second, tokens.access_token)).status).toBe(200)
})

test('rule 3: a scope that the caller lacks fails the whole request', async () => {
  const viewer = await tenant.user('viewer')
  const body = { name: 'too-much', scopes: ['containers:read', 'containers:delete'] }
  expect(await viewer.ask('POST', '/api/v1/api-clients', body)).toMatchObject({ status: 403 })

  const machine = await makeMachine(owner, ['containers:read', 'api_clients:create', 'api_clients:update'])
  const token = await tokenOf(machine)
  const refused = await at(first, token, 'POST', '/api/v1/api-clients', body)
  expect(refused).toMatchObject({
    status: 403,
    body: { code: 'grant_denied', permissions: ['containers:delete'] },
  })
  const more = await at(first, token, 'PATCH', `/api/v1/api-clients/${machine.id}`, { scopes: body.scopes })
  expect(more).toMatchObject({ status: 403, body: { code: 'grant_denied' } })
  const { items } = await owner.get<{ items: unknown[] }>('/api/v1/api-clients?name=too-much')
  expect(items).toEqual([])
})

test('rule 4: no client is granted a platform permission or reaches an operator’s route', async () => {
  const operator = await makeOperator()
  for (const scope of platformPermissions) {
    for (const who of [owner, operator]) {
      const answer = await who.ask('POST', '/api/v1/api-clients', { name: 'operator', scopes: [scope] })
      expect([403, 422]).toContain(answer.status)
    }
  }
  const token = await tokenOf(await makeMachine(owner, [...tenantPermissions]))
  for (const { method, path } of declared.filter(({ path: of }) => of.startsWith('/api/v1/platform/'))) {
    const url = path.replaceAll(/\{\w+\}/g, tenant.id)
    expect([path, (await at(first, token, method, url)).status]).toEqual([path, 403])
  }
})

test('rule 5: a client cannot call routes that are for users only', async () => {
  const token = await tokenOf(await makeMachine(owner, [...tenantPermissions]))
  const forUsers = declared.filter(
    ({ permission }) => typeof permission === 'object' && permission.for === 'users',
  )
  expect(forUsers.length).toBeGreaterThan(5)
  for (const { method, path } of forUsers) {
    const answer = await at(second, token, method, path.replaceAll(/\{\w+\}/g, tenant.id))
    expect([path, answer.status, answer.body['code']]).toEqual([path, 403, 'users_only'])
  }
})

test('rule 3: who lacks a scope of a client can neither prolong, rename nor rotate it, and may take it away', async () => {
  const machine = await makeMachine(owner, ['containers:read', 'containers:delete'])
  const client = `/api/v1/api-clients/${machine.id}`
  await owner.ask('PATCH', client, { expires_at: new Date(Date.now() - 1000).toISOString() })
  const weaker = ['containers:read', 'api_clients:read', 'api_clients:update', 'api_clients:delete']
  const token = await tokenOf(await makeMachine(owner, weaker))
  const denied = { status: 403, body: { code: 'grant_denied', permissions: ['containers:delete'] } }
  for (const change of [{ expires_at: null }, { name: 'mine-now' }, { scopes: ['containers:read'] }])
    expect(await at(second, token, 'PATCH', client, change)).toMatchObject(denied)
  expect(await at(second, token, 'POST', `${client}/rotate`)).toMatchObject(denied)
  expect((await requestToken(machine)).status).toBe(401)
  expect((await at(second, token, 'POST', `${client}/revoke-tokens`)).status).toBe(200)
  expect((await at(second, token, 'DELETE', client)).status).toBe(204)
})

const shown = async (client: Client): Promise<string[]> => {
  const { groups } = await client.get<{ groups: { resource: string; scopes: { scope: string }[] }[] }>(
    '/api/v1/api-clients/scopes',
  )
  return groups.flatMap(({ scopes: of }) => of.map(({ scope }) => scope))
}

test('rule 6: the scope catalogue shows only what the caller may grant', async () => {
  expect((await shown(owner)).toSorted()).toEqual([...tenantPermissions].toSorted())
  const viewer = await shown(await tenant.user('viewer'))
  expect(viewer.length).toBeGreaterThan(0)
  expect(viewer.filter((scope) => !scope.endsWith(':read'))).toEqual([])
})

test('rule 7: rotation revokes the old secret at once, and tokens stay valid', async () => {
  const machine = await makeMachine(owner, scopes)
  const token = await tokenOf(machine)
  const rotated = await owner.ask('POST', `/api/v1/api-clients/${machine.id}/rotate`)
  expect(rotated.status).toBe(200)
  expect(await requestToken(machine, {}, second)).toMatchObject({
    status: 401,
    body: { error: 'invalid_client' },
  })
  expect((await requestToken(rotated.body as unknown as Machine, {}, second)).status).toBe(200)
  expect((await at(second, token)).status).toBe(200)
})

test('rule 8: the other replica refuses a revoked or deleted credential on the next request', async () => {
  const machine = await makeMachine(owner, scopes)
  const client = `/api/v1/api-clients/${machine.id}`
  for (let round = 0; round < 5; round++) {
    const token = await tokenOf(machine)
    expect((await at(second, token)).status).toBe(200)
    expect((await at(first, owner.token, 'POST', `${client}/revoke-tokens`)).status).toBe(200)
    expect((await at(second, token)).status).toBe(401)
  }
  const token = await tokenOf(machine)
  expect((await at(second, token, 'POST', containers, {})).status).toBe(422)
  expect((await at(first, owner.token, 'PATCH', client, { scopes: ['containers:read'] })).status).toBe(200)
  expect((await at(second, token, 'POST', containers, {})).status).toBe(403)
  expect((await at(second, token)).status).toBe(200)
  expect((await at(first, owner.token, 'DELETE', client)).status).toBe(204)
  expect((await at(second, token)).status).toBe(401)
  expect((await requestToken(machine, {}, second)).status).toBe(401)
})

test('rule 9: only create and rotate show the secret; later requests show its hint', async () => {
  const machine = await makeMachine(owner, scopes)
  expect(machine.body['token_endpoint']).toBe(`${facts().api_url}/oauth/token`)
  const client = `/api/v1/api-clients/${machine.id}`
  const answers = [
    await owner.ask('GET', client),
    await owner.ask('GET', '/api/v1/api-clients'),
    await owner.ask('PATCH', client, { description: 'x' }),
    await owner.ask('POST', `${client}/revoke-tokens`),
  ]
  for (const { status, body } of answers) {
    expect(status).toBe(200)
    expect(JSON.stringify(body)).not.toContain(machine.client_secret)
  }
  expect(String(answers[0]?.body['secret_hint'])).toBe(machine.client_secret.slice(-4))
})

test('rule 10: last_used_at is recorded, at most once a minute', async () => {
  const machine = await makeMachine(owner, scopes)
  const read = async () => (await owner.get(`/api/v1/api-clients/${machine.id}`))['last_used_at']
  expect(await read()).toBeNull()
  const token = await tokenOf(machine)
  await eventually(async () => (await read()) !== null)
  const noted = await read()
  await Promise.all(Array.from({ length: 10 }, () => at(second, token)))
  expect(await read()).toBe(noted)
})

test('rule 11: the mail receiver needs no token: it checks a message’s signature and topic', async () => {
  const topic = await openTopic()
  try {
    const message = notification(bounce([`${newId()}@example.com`]))
    const good = signed(message, topic.signer)
    const bearer = { authorization: `Bearer ${owner.token}` }
    const refused = { status: 403, body: { code: 'notification_refused' } }
    expect(await post({ ...good, Signature: '' }, first, bearer)).toMatchObject(refused)
    const foreign = signed({ ...message, TopicArn: `${message['TopicArn']}-2` }, topic.signer)
    expect(await post(foreign, first, bearer)).toMatchObject(refused)
    expect(await post(good, second)).toMatchObject({ status: 200, body: { ok: true, recorded: 1 } })
    expect(await post(good, first)).toMatchObject({ status: 200, body: { ok: true, ignored: true } })
  } finally {
    await topic.close()
  }
})

test('rule 12: a client expires if it was created with a lifetime, else never', async () => {
  const { body } = await makeMachine(owner, scopes, { expires_in_days: 1 })
  expect(Date.parse(String(body['expires_at'])) - Date.now()).toBeGreaterThan(86_000_000)
  const machine = await makeMachine(owner, scopes)
  expect(machine.body['expires_at']).toBeNull()
  const token = await tokenOf(machine)
  const past = new Date(Date.now() - 1000).toISOString()
  await owner.ask('PATCH', `/api/v1/api-clients/${machine.id}`, { expires_at: past })
  expect((await at(second, token)).status).toBe(401)
  expect((await requestToken(machine, {}, second)).status).toBe(401)
})

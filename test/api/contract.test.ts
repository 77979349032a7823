import { beforeAll, describe, expect, test } from '@jest/globals'
import { generateKeyPair, SignJWT } from 'jose'
import { allOperations } from '../../api/index.ts'
import { internalAudience, requestHash } from '../../lib/host-protocol.ts'
import { newId } from '../../lib/ids.ts'
import { Host } from '../../models/compute/hosts.ts'
import { identityOf } from '../../models/identity/session-tokens.ts'
import { Session } from '../../models/identity/sessions.ts'
import { ask, type Client } from '../support/client.ts'
import { refusing } from '../support/refusals.ts'
import { facts } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

// Which callers each operation refuses; a refusal changes nothing.

const never = (): never => {
  throw new Error('nothing is called here')
}
const operations = allOperations({ cancel: never, apiUrl: 'http://127.0.0.1', workflowUrl: never }).map(
  (operation) => ({
    ...operation,
    name: `${operation.method} ${operation.path}`,
    url: operation.path.replaceAll(/\{\w+\}/g, newId()),
  }),
)
const guarded = operations.flatMap(({ permission, ...operation }) =>
  typeof permission === 'string' ? [{ ...operation, permission }] : [],
)
const forParties = operations.filter(
  ({ permission }) => typeof permission === 'object' && ['hosts', 'runners'].includes(permission.for),
)
const signedIn = operations.filter(
  ({ permission }) =>
    typeof permission !== 'object' || !['anybody', 'hosts', 'runners'].includes(permission.for),
)

let tenant: TestTenant
let owner: Client
let viewer: Client
let nobody: Client
beforeAll(async () => {
  tenant = await makeTenant()
  owner = tenant.owner
  viewer = await tenant.user('viewer')
  nobody = await tenant.user()
})

const path = '/api/v1/containers'

const refused = refusing(() => tenant)
const withHeader = (authorization: string) => ask('GET', path, { headers: { authorization } })
const login = (body: unknown) => ask('POST', '/api/v1/auth/login', { body })

describe('the API refuses', () => {
  test.each([...signedIn, ...forParties])('$name: a caller without a token', async ({ method, url }) => {
    const { status, headers } = await refused(() => ask(method, url))
    expect(status).toBe(401)
    expect(headers.get('www-authenticate')).toMatch(/^Bearer/)
  })

  test.each(guarded)(
    '$name: a caller without the permission, whatever the body',
    async ({ method, url, permission }) => {
      const callers = permission.endsWith(':read') ? [nobody] : [nobody, viewer]
      for (const caller of callers) {
        const answer = await refused(() => caller.ask(method, url, method === 'GET' ? undefined : 'nonsense'))
        expect(answer).toMatchObject({ status: 403, body: { code: 'permission_denied', permission } })
      }
    },
  )

  test.each(guarded.filter(({ permission }) => permission.startsWith('platform:')))(
    '$name: a tenant’s owner, because it is for operators',
    async ({ method, url, permission }) => {
      expect(await refused(() => owner.ask(method, url))).toMatchObject({ status: 403, body: { permission } })
    },
  )

  test.each(forParties)('$name: a user, because it is for hosts or runners', async ({ method, url }) => {
    expect(await refused(() => owner.ask(method, url))).toMatchObject({ status: 401 })
  })
})

describe('a token', () => {
  test.each([
    ['unknown', () => `Bearer kls_${'x'.repeat(43)}`],
    ['malformed', () => 'Bearer'],
    ['of another scheme', () => `Basic ${Buffer.from('owner:secret').toString('base64')}`],
    ['without its scheme', () => owner.token],
    ['cut short', () => `Bearer ${owner.token.slice(0, -1)}`],
    ['with something added', () => `Bearer ${owner.token}x`],
    ['far too long', () => `Bearer ${'x'.repeat(10_000)}`],
    ['that is a JWT of nobody’s', () => 'Bearer eyJhbGciOiJub25lIn0.eyJzdWIiOiJvd25lciJ9.'],
  ])('%s is refused', async (_, header) => {
    const { status, headers } = await refused(() => withHeader(header()))
    expect([status, headers.get('www-authenticate')]).toEqual([401, expect.stringMatching(/^Bearer/)])
  })

  test('is refused once it has expired, even while its record exists', async () => {
    const { token } = await tenant.user('owner')
    const identity = await identityOf(token)
    const past = new Date(Date.now() - 1)
    await Session.updateMany({ user_id: identity?.user_id ?? '' }, { $set: { expires_at: past } })
    expect(await refused(() => ask('GET', path, { token }))).toMatchObject({ status: 401 })
  })

  test('is refused after logout', async () => {
    const client = await tenant.user('owner')
    expect(await client.ask('POST', '/api/v1/auth/logout')).toMatchObject({ status: 204 })
    expect(await refused(() => client.ask('GET', path))).toMatchObject({ status: 401 })
  })

  test('of a user loses revoked permissions on the next request', async () => {
    const client = await tenant.user('owner')
    const { id } = await client.get<{ id: string }>('/api/v1/account')
    await client.get(path)
    await owner.ask('PATCH', `/api/v1/users/${id}`, { roles: [] })
    expect(await refused(() => client.ask('GET', path))).toMatchObject({ status: 403 })
    await owner.ask('PATCH', `/api/v1/users/${id}`, { disabled: true })
    expect(await refused(() => client.ask('GET', path))).toMatchObject({ status: 401 })
  })

  test('of a host is refused if another key signed it', async () => {
    const host = await Host.findOne({ status: 'active' }).lean()
    const { privateKey } = await generateKeyPair('EdDSA')
    const report = `/internal/v1/hosts/${host?._id}/reports`
    const token = await new SignJWT({ req: requestHash('POST', report) })
      .setProtectedHeader({ alg: 'EdDSA', typ: 'host+jwt' })
      .setIssuer(host?._id ?? '')
      .setSubject(host?._id ?? '')
      .setAudience(internalAudience)
      .setJti(newId())
      .setIssuedAt()
      .setExpirationTime('60 s')
      .sign(privateKey)
    expect(await refused(() => ask('POST', report, { token, body: {} }))).toMatchObject({ status: 401 })
  })
})

describe('login', () => {
  test('a login answers alike for a wrong password and an unknown address', async () => {
    const { email } = facts()
    const answers = await Promise.all(
      [email, 'nobody@example.com'].map((address) =>
        refused(() => login({ email: address, password: 'wrong' })),
      ),
    )
    const [first, second] = answers.map(({ status, body }) => ({ status, body: { ...body, request_id: '' } }))
    expect(first).toEqual(second)
    expect(first).toMatchObject({ status: 401, body: { code: 'invalid_credentials' } })
  })
})

test('the OpenAPI document is served, and matches the declarations', async () => {
  const { body } = await ask('GET', '/api/v1/openapi.json')
  expect(body).toMatchObject({ openapi: '3.1.0', servers: [{ url: facts().api_url }] })
  const page = await ask('GET', '/docs')
  expect([page.status, page.headers.get('content-type')]).toEqual([200, expect.stringMatching(/^text\/html/)])
})

test('no answer names the server software', async () => {
  const { headers } = await owner.ask('GET', path)
  expect(headers.get('x-powered-by')).toBeNull()
  expect(headers.get('x-content-type-options')).toBe('nosniff')
})

import { afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { newId } from '../../lib/ids.ts'
import { Attempt } from '../../models/identity/guesses.ts'
import { MailRecord } from '../../models/identity/mails.ts'
import { OneTimeToken } from '../../models/identity/one-time-tokens.ts'
import { hashToken } from '../../models/secrets.ts'
import { ask, Client, type Json } from '../support/client.ts'
import '../support/exclusive.ts'
import { mailedToken, mailsTo } from '../support/mailbox.ts'
import { refusing } from '../support/refusals.ts'
import { facts } from '../support/stack.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
let owner: Client
let admin: Client
beforeAll(async () => {
  tenant = await makeTenant()
  owner = tenant.owner
  admin = await tenant.user('admin')
})
// All tests log in from one address, so clear the failures before each test.
beforeEach(() => Attempt.deleteMany())
afterEach(() => Attempt.deleteMany())
const refused = refusing(() => tenant)

const path = '/api/v1/users'
const password = 'correct horse battery'
const newEmail = (): string => `${newId()}@example.com`
const idOf = async (client: Client): Promise<string> =>
  (await client.get<{ id: string }>('/api/v1/account')).id
const at = async (client: Client): Promise<string> => `${path}/${await idOf(client)}`
const accept = (token: string, chosen = password) =>
  ask('POST', '/api/v1/auth/accept-invitation', { body: { token, password: chosen } })
const login = (email: string, given = password) =>
  ask('POST', '/api/v1/auth/login', { body: { email, password: given } })
const askReset = (email: string) => ask('POST', '/api/v1/auth/password-reset', { body: { email } })
const reset = (token: string, chosen: string) =>
  ask('POST', '/api/v1/auth/password-reset/confirm', { body: { token, password: chosen } })

async function invite(over: Json = {}): Promise<{ id: string; email: string }> {
  const email = newEmail()
  const { status, body } = await owner.ask('POST', path, { email, ...over })
  expect(status).toBe(201)
  return { id: String(body['id']), email }
}
async function join(over: Json = {}): Promise<{ id: string; email: string; client: Client }> {
  const invited = await invite(over)
  expect(await accept(await mailedToken(invited.email))).toMatchObject({ status: 204 })
  const { body } = await login(invited.email)
  return { ...invited, client: new Client(String(body['token'])) }
}
async function role(...permissions: string[]): Promise<string> {
  const name = `role-${newId().slice(-12)}`
  expect(await owner.ask('POST', '/api/v1/roles', { name, permissions })).toMatchObject({ status: 201 })
  return name
}
const lacking = (...permissions: string[]) => ({
  status: 403,
  body: { code: 'grant_denied', permissions: expect.arrayContaining(permissions) },
})

describe('an invitation', () => {
  test('by mail lets a person choose a password, log in, and act with the given roles', async () => {
    const email = `Ada.${newEmail()}`
    const invited = await owner.ask('POST', path, { email, name: 'Ada', roles: ['viewer'] })
    const address = email.toLowerCase()
    expect(invited).toMatchObject({ status: 201, body: { email: address, status: 'invited', name: 'Ada' } })
    const token = await mailedToken(address)
    const [mail] = await mailsTo(address)
    expect(mail?.text).toContain(`${facts().api_url}/accept-invitation#token=${token}`)
    expect(await login(address)).toMatchObject({ status: 401 })

    expect(await accept(token)).toMatchObject({ status: 204 })
    const { status, body } = await login(email)
    expect(status).toBe(200)
    const ada = new Client(String(body['token']))
    expect(await ada.get('/api/v1/account')).toMatchObject({ name: 'Ada', roles: ['viewer'] })
    expect(await ada.ask('GET', '/api/v1/containers')).toMatchObject({ status: 200 })
    expect(await ada.ask('POST', '/api/v1/containers', {})).toMatchObject({ status: 403 })
    expect(await owner.get(invited.headers.get('location') ?? '')).toMatchObject({ status: 'active' })
  })

  test('is accepted once, also if many requests accept it in parallel', async () => {
    const { email } = await invite()
    const token = await mailedToken(email)
    const answers = await Promise.all(Array.from({ length: 5 }, (_, i) => accept(token, `${password} ${i}`)))
    const statuses = answers.map(({ status }) => status).toSorted((a, b) => a - b)
    expect(statuses).toEqual([204, 422, 422, 422, 422])
    expect(await refused(() => accept(token))).toMatchObject({ status: 422 })
  })

  test('sent again replaces the former one, and is possible only for invited users', async () => {
    const { id, email } = await invite()
    const first = await mailedToken(email)
    expect(await owner.ask('POST', `${path}/${id}/invite`)).toMatchObject({ status: 200 })
    expect(await mailsTo(email)).toHaveLength(2)
    expect(await refused(() => accept(first))).toMatchObject({ status: 422 })
    expect(await accept(await mailedToken(email))).toMatchObject({ status: 204 })
    const again = await refused(() => owner.ask('POST', `${path}/${id}/invite`))
    expect(again).toMatchObject({ status: 409, body: { code: 'state_conflict', state: 'active' } })
  })

  test.each([
    ['unknown', async () => `kli_${'x'.repeat(43)}`],
    [
      'of a user who was removed',
      async () => {
        const { id, email } = await invite()
        await owner.ask('DELETE', `${path}/${id}`)
        return mailedToken(email)
      },
    ],
    [
      'of a user who was disabled',
      async () => {
        const { id, email } = await invite()
        await owner.ask('PATCH', `${path}/${id}`, { disabled: true })
        return mailedToken(email)
      },
    ],
    [
      'that has ended',
      async () => {
        const token = await mailedToken((await invite()).email)
        const ended = { $set: { expires_at: new Date(0) } }
        await OneTimeToken.updateOne({ _id: hashToken(token), tenant_id: tenant.id }, ended)
        return token
      },
    ],
    [
      'that is for a password reset',
      async () => {
        const { email } = await join()
        await askReset(email)
        return mailedToken(email)
      },
    ],
  ])('%s is refused', async (_, token) => {
    const value = await token()
    expect(await refused(() => accept(value))).toMatchObject({
      status: 422,
      body: { errors: [{ pointer: '/token' }] },
    })
  })

  test('stores no token that a stolen database would show', async () => {
    const { email } = await invite()
    const token = await mailedToken(email)
    const kept = [await OneTimeToken.find({ tenant_id: tenant.id }).lean(), await MailRecord.find().lean()]
    expect(JSON.stringify(kept)).not.toContain(token)
  })

  test('takes no address that is not confirmed, and does not tell of users of other tenants', async () => {
    const { email } = await invite()
    const other = await makeTenant()
    const answer = await other.owner.ask('POST', path, { email, roles: ['viewer'] })
    expect(answer).toMatchObject({ status: 201, body: { email, status: 'invited' } })
    const theirs = await mailedToken(email)
    expect(await accept(theirs)).toMatchObject({ status: 204 })

    // Confirmed: still nobody else is told, but who has the mailbox.
    const again = await (await makeTenant()).owner.ask('POST', path, { email, roles: ['viewer'] })
    expect(again).toMatchObject({ status: 201, body: { email, status: 'invited' } })
    expect(await refused(async () => accept(await mailedToken(email)))).toMatchObject({
      status: 409,
      body: { code: 'email_taken' },
    })
    expect(await login(email)).toMatchObject({ status: 200 })
  })

  test('is limited per address and tenant, and floods no mailbox', async () => {
    const email = newEmail()
    const tenants = await Promise.all(Array.from({ length: 4 }, () => makeTenant()))
    for (const [i, { owner: by }] of tenants.entries()) {
      const { body } = await by.ask('POST', path, { email })
      const statuses = []
      for (let again = 0; again < 3; again++)
        statuses.push((await by.ask('POST', `${path}/${String(body['id'])}/invite`)).status)
      expect([i, ...statuses]).toEqual([i, 200, 200, 429])
    }
    expect(await mailsTo(email)).toHaveLength(10)
  })

  test('is refused for a taken address and for an unknown role', async () => {
    const { email } = await invite()
    const twice = await refused(() => owner.ask('POST', path, { email: email.toUpperCase() }))
    expect(twice).toMatchObject({ status: 409, body: { code: 'email_taken' } })
    for (const none of ['operator', 'nonesuch']) {
      const send = () => owner.ask('POST', path, { email: newEmail(), roles: [none] })
      expect(await refused(send)).toMatchObject({ status: 422, body: { errors: [{ pointer: '/roles' }] } })
    }
  })

  test('refuses a short password', async () => {
    const token = await mailedToken((await invite()).email)
    expect(await refused(() => accept(token, 'short'))).toMatchObject({ status: 422 })
  })
})

describe('a user', () => {
  test('is listed with the users of the same tenant only', async () => {
    const { id, email } = await invite({ name: 'Grace Hopper' })
    const { items } = await owner.get<{ items: Json[] }>(`${path}?q=hopper&status=invited`)
    expect(items.map((user) => user['id'])).toContain(id)
    const other = await makeTenant()
    expect(await other.owner.get(`${path}?email=${email}`)).toEqual({ items: [], total: 0 })
    for (const [method, body] of [['GET'], ['PATCH', {}], ['DELETE']] as const)
      expect(await other.owner.ask(method, `${path}/${id}`, body)).toMatchObject({ status: 404 })
    expect(await other.owner.ask('POST', `${path}/${id}/invite`)).toMatchObject({ status: 404 })
    expect(JSON.stringify(items)).not.toContain('password')
  })

  test('gets changed roles on the next request', async () => {
    const user = await tenant.user('viewer')
    expect(await user.ask('GET', path)).toMatchObject({ status: 200 })
    expect(await owner.ask('PATCH', await at(user), { roles: [] })).toMatchObject({ status: 200 })
    expect(await user.ask('GET', path)).toMatchObject({ status: 403 })
  })

  test('who is disabled loses all sessions at once, and must log in again when re-enabled', async () => {
    const { id, email, client } = await join({ roles: ['viewer'] })
    expect(await owner.ask('PATCH', `${path}/${id}`, { disabled: true })).toMatchObject({
      body: { status: 'disabled' },
    })
    expect(await client.ask('GET', path)).toMatchObject({ status: 401 })
    expect(await login(email)).toMatchObject({ status: 401, body: { code: 'invalid_credentials' } })
    expect(await owner.ask('PATCH', `${path}/${id}`, { disabled: false })).toMatchObject({
      body: { status: 'active' },
    })
    expect(await client.ask('GET', path)).toMatchObject({ status: 401 })
    expect(await login(email)).toMatchObject({ status: 200 })
  })

  test('who is removed loses access at once', async () => {
    const { id, email, client } = await join()
    expect(await owner.ask('DELETE', `${path}/${id}`)).toMatchObject({ status: 204 })
    expect(await client.ask('GET', '/api/v1/account')).toMatchObject({ status: 401 })
    expect(await login(email)).toMatchObject({ status: 401 })
    expect(await owner.ask('GET', `${path}/${id}`)).toMatchObject({ status: 404 })
  })

  test('never has a role that was deleted at the same time', async () => {
    const user = await tenant.user()
    const url = await at(user)
    for (let round = 0; round < 5; round++) {
      const name = await role('vms:read')
      const [given, deleted] = await Promise.all([
        owner.ask('PATCH', url, { roles: [name] }),
        owner.ask('DELETE', `/api/v1/roles/${name}`),
      ])
      expect([
        [200, 409],
        [422, 204],
      ]).toContainEqual([given.status, deleted.status])
      await owner.ask('PATCH', url, { roles: [] })
    }
  })
})

describe('a user with limited permissions', () => {
  test('cannot invite someone with more permissions at an own address', async () => {
    const asked = { email: newEmail(), roles: ['owner'] }
    expect(await refused(() => admin.ask('POST', path, asked))).toMatchObject(
      lacking('roles:delete', 'users:delete'),
    )
  })

  test('cannot assign a role with permissions that the user lacks, to anyone', async () => {
    const user = await tenant.user('viewer')
    for (const url of [await at(admin), await at(user)])
      expect(await refused(() => admin.ask('PATCH', url, { roles: ['admin', 'owner'] }))).toMatchObject(
        lacking('users:delete'),
      )
    const strong = await role('users:delete')
    const url = await at(user)
    expect(await refused(() => admin.ask('PATCH', url, { roles: [strong] }))).toMatchObject(
      lacking('users:delete'),
    )
    expect(await user.get('/api/v1/account')).toMatchObject({ roles: ['viewer'] })
  })

  test('cannot assign the operator role', async () => {
    const operator = await tenant.user('owner', 'operator')
    const url = await at(await tenant.user())
    for (const by of [owner, operator])
      expect(await refused(() => by.ask('PATCH', url, { roles: ['operator'] }))).toMatchObject({
        status: 422,
      })
  })

  test('cannot change, disable, re-invite or remove a user with more permissions', async () => {
    const remover = await tenant.user('viewer', await role('users:update', 'users:delete', 'users:create'))
    const target = await tenant.user('developer')
    const invited = `${path}/${(await invite({ roles: ['developer'] })).id}`
    const url = await at(target)
    for (const send of [
      () => remover.ask('PATCH', url, { disabled: true }),
      () => remover.ask('PATCH', url, { roles: [] }),
      () => remover.ask('PATCH', url, { name: 'Fool' }),
      () => remover.ask('DELETE', url),
      () => remover.ask('POST', `${invited}/invite`),
    ])
      expect(await refused(send)).toMatchObject(lacking('containers:create'))
    expect(await target.ask('GET', '/api/v1/containers')).toMatchObject({ status: 200 })
  })

  test('cannot manage an operator as the tenant’s owner; the operator role stays when other roles change', async () => {
    const operator = await tenant.user('owner', 'operator')
    const url = await at(operator)
    expect(await refused(() => owner.ask('DELETE', url))).toMatchObject(lacking('platform:hosts'))
    expect(await refused(() => owner.ask('PATCH', url, { disabled: true }))).toMatchObject(
      lacking('platform:hosts'),
    )
    expect(await operator.ask('PATCH', url, { roles: ['viewer'] })).toMatchObject({
      status: 200,
      body: { roles: ['viewer', 'operator'] },
    })
  })

  test('can manage users with no more permissions', async () => {
    const url = await at(await tenant.user('viewer'))
    expect(await admin.ask('PATCH', url, { roles: ['developer'], name: 'Bob' })).toMatchObject({
      status: 200,
    })
  })
})

describe('a password reset', () => {
  test('works once by a mailed token, and ends all sessions', async () => {
    const { email, client } = await join({ roles: ['viewer'] })
    expect(await askReset(email.toUpperCase())).toMatchObject({ status: 204 })
    const token = await mailedToken(email)
    expect(await client.ask('GET', path)).toMatchObject({ status: 200 })
    expect(await reset(token, 'another good password')).toMatchObject({ status: 204 })
    expect(await client.ask('GET', path)).toMatchObject({ status: 401 })
    expect(await login(email)).toMatchObject({ status: 401 })
    expect(await login(email, 'another good password')).toMatchObject({ status: 200 })
    expect(await refused(() => reset(token, 'yet another password'))).toMatchObject({ status: 422 })
  })

  test('request answers alike for unknown, invited and disabled addresses, and mails none of them', async () => {
    const { email } = await join()
    const invited = await invite()
    const disabled = await join()
    await owner.ask('PATCH', `${path}/${disabled.id}`, { disabled: true })
    const unknown = newEmail()
    const addresses = [email, invited.email, disabled.email, unknown]
    const counts = () => Promise.all(addresses.map(async (address) => (await mailsTo(address)).length))
    const before = await counts()
    const answers = await Promise.all(addresses.map(askReset))
    expect(answers.map(({ status, body }) => [status, body])).toEqual(
      addresses.map(() => [204, { text: '' }]),
    )
    const more = (await counts()).map((count, i) => count - (before[i] ?? 0))
    expect(more).toEqual([1, 0, 0, 0])
  })

  test('request replaces the former token, and does not flood the mailbox', async () => {
    const { email } = await join()
    const before = (await mailsTo(email)).length
    await askReset(email)
    const first = await mailedToken(email)
    for (let i = 0; i < 6; i++) expect(await askReset(email)).toMatchObject({ status: 204 })
    expect(await mailsTo(email)).toHaveLength(before + 5)
    expect(await refused(() => reset(first, 'another good password'))).toMatchObject({ status: 422 })
  })

  test('unlocks an account that was locked by failed logins', async () => {
    const { email } = await join()
    for (let i = 0; i < 5; i++) await login(email, 'wrong')
    expect(await login(email)).toMatchObject({ status: 429 })
    await askReset(email)
    expect(await reset(await mailedToken(email), 'another good password')).toMatchObject({ status: 204 })
    expect(await login(email, 'another good password')).toMatchObject({ status: 200 })
  })
})

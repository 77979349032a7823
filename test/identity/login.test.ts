import { afterEach, beforeAll, beforeEach, describe, expect, test } from '@jest/globals'
import { Authenticator } from '../../models/identity/authenticators.ts'
import { Browser } from '../../models/identity/browsers.ts'
import { Attempt } from '../../models/identity/guesses.ts'
import { User } from '../../models/identity/users.ts'
import { ask, Client, type Json } from '../support/client.ts'
import { eventually } from '../support/eventually.ts'
import '../support/exclusive.ts'
import { codeOf, login, password, peopleOf } from '../support/people.ts'
import { refusing } from '../support/refusals.ts'
import { makeTenant, type TestTenant } from '../support/tenants.ts'

let tenant: TestTenant
beforeAll(async () => {
  tenant = await makeTenant()
})
// All tests log in from one address, so clear the failures before each test.
beforeEach(() => Attempt.deleteMany())
afterEach(() => Attempt.deleteMany())
const refused = refusing(() => tenant)
const { make: makePerson, enrolled, remembered } = peopleOf(() => tenant)

const signIn = (form: Record<string, string>) =>
  ask('POST', '/codec/sign-in', {
    body: new URLSearchParams(form).toString(),
    headers: { 'content-type': 'application/x-www-form-urlencoded' },
  })

describe('an authenticator', () => {
  test('is enrolled by secret, URL or image; logins need a code once it is confirmed', async () => {
    const { email, client } = await makePerson()
    const { body } = await client.ask('POST', '/api/v1/account/authenticator')
    const secret = String(body['secret'])
    const url = new URL(String(body['otpauth_url']))
    expect([url.protocol, url.searchParams.get('secret'), url.searchParams.get('issuer')]).toEqual([
      'otpauth:',
      secret,
      'Keelson',
    ])
    expect(decodeURIComponent(url.pathname)).toContain(email)
    expect(body['qr_svg']).toMatch(/^<svg/)
    expect(await login({ email, password })).toMatchObject({ status: 200 })

    const wrong = await refused(() =>
      client.ask('POST', '/api/v1/account/authenticator/confirm', { otp: codeOf(secret, 50) }),
    )
    expect(wrong).toMatchObject({ status: 422 })
    const otp = codeOf(secret)
    const confirmed = await client.ask('POST', '/api/v1/account/authenticator/confirm', { otp })
    expect(new Set(confirmed.body['recovery_codes'] as string[]).size).toBe(10)
    expect(await client.get('/api/v1/account')).toMatchObject({ authenticator: true })
    expect(await refused(() => login({ email, password }))).toMatchObject({
      status: 401,
      body: { code: 'otp_required' },
    })
    expect(await login({ email, password, otp })).toMatchObject({ body: { code: 'invalid_otp' } })
    expect(await login({ email, password, otp: codeOf(secret, 1) })).toMatchObject({ status: 200 })
  })

  test('cannot be replaced by another while it is confirmed', async () => {
    const { client, credentials, secret } = await enrolled()
    const again = await refused(() => client.ask('POST', '/api/v1/account/authenticator'))
    expect(again).toMatchObject({ status: 409, body: { code: 'authenticator_enrolled' } })
    expect(await login({ ...credentials, otp: codeOf(secret) })).toMatchObject({ status: 200 })
  })

  test('accepts each code once, also in parallel, and no code older than the last used one', async () => {
    const { credentials, secret } = await enrolled()
    const [now, next] = [codeOf(secret), codeOf(secret, 1)]
    const answers = await Promise.all([now, now, now].map((otp) => login({ ...credentials, otp })))
    expect(answers.filter(({ status }) => status === 200)).toHaveLength(1)
    expect(await login({ ...credentials, otp: next })).toMatchObject({ status: 200 })
    for (const otp of [now, next])
      expect(await refused(() => login({ ...credentials, otp }))).toMatchObject({
        status: 401,
        body: { code: 'invalid_otp' },
      })
  })

  test.each([-3, 3])('refuses a code that is %d steps away', async (steps) => {
    const { credentials, secret } = await enrolled()
    const answer = await refused(() => login({ ...credentials, otp: codeOf(secret, steps) }))
    expect(answer).toMatchObject({ status: 401, body: { code: 'invalid_otp' } })
  })

  test('can be replaced by single-use recovery codes if it is lost', async () => {
    const { credentials, codes } = await enrolled()
    const [first = '', second = ''] = codes
    const answers = await Promise.all([first, first].map((otp) => login({ ...credentials, otp })))
    expect(answers.map(({ status }) => status).toSorted((a, b) => a - b)).toEqual([200, 401])
    const typed = second.toLowerCase().replace('-', ' ')
    expect(await login({ ...credentials, otp: typed })).toMatchObject({ status: 200 })
    expect(await login({ ...credentials, otp: first })).toMatchObject({ status: 401 })
  })

  test('is removed by the password or a code, not by a session alone', async () => {
    const byPassword = await enrolled()
    const path = '/api/v1/account/authenticator'
    expect(await refused(() => byPassword.client.ask('DELETE', path))).toMatchObject({ status: 422 })
    const wrong = await refused(() => byPassword.client.ask('DELETE', path, { password: 'a wrong one' }))
    expect(wrong).toMatchObject({ status: 403, body: { code: 'wrong_password' } })
    const wrongCode = await refused(() => byPassword.client.ask('DELETE', path, { otp: 'ABCDE-FGHIJ' }))
    expect(wrongCode).toMatchObject({ status: 403, body: { code: 'wrong_code' } })
    expect(await byPassword.client.ask('DELETE', path, { password })).toMatchObject({ status: 204 })
    expect(await login(byPassword.credentials)).toMatchObject({ status: 200 })

    const byCode = await enrolled()
    const removed = await byCode.client.ask('DELETE', path, { otp: codeOf(byCode.secret) })
    expect(removed).toMatchObject({ status: 204 })
    expect(await byCode.client.get('/api/v1/account')).toMatchObject({ authenticator: false })
  })

  test('is required on the codec’s page too', async () => {
    const { credentials, secret } = await enrolled()
    const without = await signIn(credentials)
    expect([without.status, without.headers.get('set-cookie')]).toEqual([401, null])
    const given = await signIn({ ...credentials, otp: codeOf(secret) })
    expect([given.status, given.headers.get('set-cookie')]).toEqual([
      200,
      expect.stringMatching(/^keelson_codec=/),
    ])
  })

  test('stores nothing readable in the database', async () => {
    const { id, secret, codes } = await enrolled()
    const kept = JSON.stringify(await Authenticator.findOne({ tenant_id: tenant.id, _id: id }).lean())
    for (const text of [secret, ...codes, ...codes.map((code) => code.replace('-', ''))])
      expect(kept).not.toContain(text)
  })
})

describe('a remembered browser', () => {
  const path = '/api/v1/account/browsers'
  test('needs no code, until it is forgotten', async () => {
    const { client, credentials, remember_token, id } = await remembered()
    expect(remember_token).toMatch(/^klb_/)
    expect(await login({ ...credentials, remember_token })).toMatchObject({ status: 200 })
    const { items } = await client.get<{ items: Json[] }>(path)
    expect(items).toHaveLength(1)
    const kept = await Browser.findOne({ tenant_id: tenant.id, user_id: id }).lean()
    expect(JSON.stringify([items, kept])).not.toContain(remember_token)
    expect(await client.ask('DELETE', `${path}/${String(items[0]?.['id'])}`)).toMatchObject({ status: 204 })
    expect(await login({ ...credentials, remember_token })).toMatchObject({ body: { code: 'otp_required' } })
  })

  test('works for one user, for 30 days, and still needs the password', async () => {
    const mine = await remembered()
    const { remember_token } = mine
    const other = await enrolled()
    expect(await login({ ...other.credentials, remember_token })).toMatchObject({ status: 401 })
    expect(await login({ email: mine.email, password: 'wrong', remember_token })).toMatchObject({
      body: { code: 'invalid_credentials' },
    })
    const { items } = await mine.client.get<{ items: Json[] }>(path)
    const theirs = await refused(() => other.client.ask('DELETE', `${path}/${String(items[0]?.['id'])}`))
    expect(theirs).toMatchObject({ status: 404 })
    const past = { $set: { expires_at: new Date(Date.now() - 1) } }
    await Browser.updateOne({ tenant_id: tenant.id, user_id: mine.id }, past)
    expect(await login({ ...mine.credentials, remember_token })).toMatchObject({
      body: { code: 'otp_required' },
    })
  })

  test('is not created by a login without a code', async () => {
    const plain = await makePerson()
    const { body } = await login({ email: plain.email, password, remember: true })
    expect(body).not.toHaveProperty('remember_token')
  })
})

describe('a password', () => {
  test.each(['x'.repeat(80), '密码'.repeat(20)])('above 72 bytes is compared to its end', async (chosen) => {
    const { email } = await makePerson(chosen)
    const answer = await refused(() => login({ email, password: `${chosen.slice(0, -1)}y` }))
    expect(answer).toMatchObject({ status: 401 })
    expect(await login({ email, password: `${chosen}y` })).toMatchObject({ status: 401 })
  })

  test('change ends all other sessions and remembered browsers, and keeps this session', async () => {
    const { client, credentials, secret, codes } = await enrolled()
    const { body } = await login({ ...credentials, otp: codeOf(secret), remember: true })
    const other = new Client(String(body['token']))
    const change = { current_password: password, new_password: 'another good password' }
    expect(await client.ask('POST', '/api/v1/account/password', change)).toMatchObject({ status: 204 })
    expect(await client.ask('GET', '/api/v1/account')).toMatchObject({ status: 200 })
    expect(await other.ask('GET', '/api/v1/account')).toMatchObject({ status: 401 })
    const fresh = { ...credentials, password: change.new_password }
    const remember_token = String(body['remember_token'])
    expect(await login({ ...fresh, remember_token })).toMatchObject({ body: { code: 'otp_required' } })
    expect(await login({ ...fresh, otp: codes[0] })).toMatchObject({ status: 200 })
    expect(await login({ ...credentials, otp: codes[1] })).toMatchObject({
      body: { code: 'invalid_credentials' },
    })
  })

  test('change requires the current password, and limits guesses', async () => {
    const { client } = await makePerson()
    const guess = () =>
      client.ask('POST', '/api/v1/account/password', {
        current_password: 'a guess',
        new_password: 'another good password',
      })
    for (let i = 0; i < 5; i++)
      expect(await refused(guess)).toMatchObject({ status: 403, body: { code: 'wrong_password' } })
    expect(await refused(guess)).toMatchObject({ status: 429 })
  })
})

describe('the list of sessions', () => {
  test('shows no tokens, and each session can be ended', async () => {
    const { client, email } = await makePerson()
    const other = new Client(String((await login({ email, password })).body['token']))
    const { items, total } = await client.get<{ items: Json[]; total: number }>('/api/v1/account/sessions')
    expect(total).toBe(2)
    expect(JSON.stringify(items)).not.toContain(other.token)
    const stranger = await makePerson()
    const newest = `/api/v1/account/sessions/${String(items[0]?.['id'])}`
    expect(await refused(() => stranger.client.ask('DELETE', newest))).toMatchObject({ status: 404 })
    expect(await client.ask('DELETE', newest)).toMatchObject({ status: 204 })
    expect(await other.ask('GET', '/api/v1/account')).toMatchObject({ status: 401 })
    expect(await client.ask('GET', '/api/v1/account')).toMatchObject({ status: 200 })
  })
})

const decode = (headers: Record<string, string>) =>
  ask('POST', '/codec/decode', { body: { payloads: [] }, headers })

describe('the codec’s page', () => {
  test('opens an audited session of its own, in a cookie for an hour that is good for nothing else', async () => {
    const { email } = await makePerson()
    await User.updateOne({ tenant_id: tenant.id, email }, { $set: { roles: ['viewer', 'operator'] } })
    const wrong = await signIn({ email, password: 'wrong' })
    const right = await signIn({ email, password })
    const cookie = right.headers.get('set-cookie') ?? ''
    const attributes = cookie.split('; ').slice(1)
    expect(attributes).toEqual(
      expect.arrayContaining(['Path=/codec', 'HttpOnly', 'Secure', 'SameSite=Strict']),
    )
    const [, expires = ''] = /Expires=([^;]+)/.exec(cookie) ?? []
    expect(Date.parse(expires) - Date.now()).toBeLessThanOrEqual(3_600_000)
    const [, token = ''] = /^keelson_codec=([^;]+)/.exec(cookie) ?? []
    expect(await decode({ cookie: `keelson_codec=${token}` })).toMatchObject({ status: 200 })
    expect(await ask('GET', '/api/v1/account', { token })).toMatchObject({ status: 401 })
    const { body } = await login({ email, password })
    expect(await decode({ cookie: `keelson_codec=${String(body['token'])}` })).toMatchObject({ status: 401 })
    for (const [answer, outcome] of [
      [wrong, 'refused'],
      [right, 'succeeded'],
    ] as const)
      await eventually(async () => {
        const at = `/api/v1/audit-events?request_id=${answer.headers.get('x-request-id')}`
        const { items } = await tenant.owner.get<{ items: Json[] }>(at)
        return items[0]?.['action'] === 'POST /codec/sign-in' && items[0]['outcome'] === outcome
      })
  })
})
